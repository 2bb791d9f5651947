import com.fasterxml.jackson.databind.JsonNode;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RetriableCommitFailedException;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member of a group on a thread of its own: it polls, commits what it got, and writes what befalls it.
 *
 * <p>Each event is one line of JSON, written by one append to a file that all members of a test share, in all their
 * processes: the file is the order in which things happened, also when a process is killed.
 */
final class Member implements Runnable, ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private final String name;
    private final boolean commits;
    private final FileOutputStream history;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final LinkedBlockingQueue<FutureTask<Object>> tasks = new LinkedBlockingQueue<>();
    private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
    private final Thread thread;
    private CloseOptions.GroupMembershipOperation closing = null;
    private boolean held = false;

    private Member(JsonNode asked) throws IOException {
        name = Members.name(asked);
        commits = asked.get("commits").asBoolean();
        history = new FileOutputStream(asked.get("history").asText(), true);
        Map<String, Object> settings = new HashMap<>();
        asked.get("settings").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        thread = new Thread(this, name);
    }

    static Member start(JsonNode asked) throws IOException {
        var member = new Member(asked);
        String topics = asked.get("topics").asText();
        switch (asked.get("subscription").asText()) {
            case "names" -> member.consumer.subscribe(List.of(topics.split(",")), member);
            case "pattern" -> member.consumer.subscribe(new SubscriptionPattern(topics), member);
            default -> member.consumer.subscribe(Pattern.compile(topics), member);
        }
        member.thread.setDaemon(true);
        member.thread.start();
        return member;
    }

    @Override
    public void run() {
        try {
            while (closing == null) {
                if (held || !tasks.isEmpty()) {
                    tasks.take().run();
                } else {
                    poll();
                }
            }
        } catch (Exception failure) {
            write("failed", Map.of("error", failure.getClass().getSimpleName()));
        } finally {
            close();
        }
    }

    private void poll() {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
        for (TopicPartition partition : records.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> run = records.records(partition);
            long first = run.get(0).offset();
            long end = run.get(run.size() - 1).offset() + 1;
            if (end - first != run.size()) {
                throw new IllegalStateException("records are missing");
            }
            write("delivered", Map.of("partitions", pairs(List.of(partition)), "first", first, "end", end));
            uncommitted.put(partition, new OffsetAndMetadata(end));
        }
        if (commits) {
            commitWhatCame();
        }
    }

    private void commitWhatCame() {
        if (uncommitted.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(uncommitted, PATIENCE);
            uncommitted.forEach((partition, kept) ->
                write("committed", Map.of("partitions", pairs(List.of(partition)), "end", kept.offset())));
            uncommitted.clear();
        } catch (CommitFailedException | RebalanceInProgressException refusal) {
            write("refused", Map.of("error", refusal.getClass().getSimpleName()));
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        owned("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        if (commits) {
            commitWhatCame();
        }
        partitions.forEach(uncommitted::remove);
        owned("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        partitions.forEach(uncommitted::remove);
        owned("lost", partitions);
    }

    private void owned(String event, Collection<TopicPartition> partitions) {
        write(event, Map.of("partitions", pairs(partitions), "generation", consumer.groupMetadata().generationId()));
    }

    private static List<List<Object>> pairs(Collection<TopicPartition> partitions) {
        return partitions.stream().map(each -> List.<Object>of(each.topic(), each.partition())).toList();
    }

    private void write(String event, Map<String, Object> details) {
        Map<String, Object> line = new LinkedHashMap<>(Map.of("member", name, "event", event));
        line.putAll(details);
        try {
            history.write((Driver.JSON.writeValueAsString(line) + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    /** Held, it does not poll until it is let go. */
    Object hold(boolean wanted) throws Exception {
        return between(() -> held = wanted);
    }

    /** Null, or the name of the refusal. Later: without waiting for the answer, which the next polls bring. */
    Object commit(Map<TopicPartition, OffsetAndMetadata> offsets, boolean later) throws Exception {
        if (!later) {
            return between(() -> {
                try {
                    consumer.commitSync(offsets, PATIENCE);
                    return null;
                } catch (CommitFailedException | RebalanceInProgressException refusal) {
                    return refusal.getClass().getSimpleName();
                }
            });
        }
        var answer = new CompletableFuture<Object>();
        between(() -> {
            consumer.commitAsync(offsets, (sent, failure) -> {
                Throwable cause = failure instanceof RetriableCommitFailedException ? failure.getCause() : failure;
                answer.complete(cause == null ? "" : cause.getClass().getSimpleName());
            });
            return null;
        });
        String refusal = (String) answer.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        return refusal.isEmpty() ? null : refusal;
    }

    Object committed(List<TopicPartition> partitions) throws Exception {
        return between(() -> Members.rows(consumer.committed(new HashSet<>(partitions), PATIENCE)));
    }

    /** Runs on the member's own thread, between two polls. */
    private Object between(Callable<Object> act) throws Exception {
        var task = new FutureTask<>(act);
        tasks.add(task);
        return task.get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
    }

    /** One that failed has closed already. */
    Object close(String operation) throws Exception {
        if (thread.isAlive()) {
            tasks.add(new FutureTask<>(() -> closing = CloseOptions.GroupMembershipOperation.valueOf(operation)));
        }
        thread.join(PATIENCE.toMillis());
        if (thread.isAlive()) {
            throw new IllegalStateException(name + " does not end");
        }
        return null;
    }

    private void close() {
        var operation = closing == null ? CloseOptions.GroupMembershipOperation.DEFAULT : closing;
        consumer.close(CloseOptions.timeout(PATIENCE).withGroupMembershipOperation(operation));
        write("closed", Map.of());
    }
}
