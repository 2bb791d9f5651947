import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producers and consumers that stay open between calls, by a number. Bytes travel as base64, null as null. */
final class Clients {
    private static final Duration PATIENCE = Duration.ofSeconds(20);
    private static final long POLL_NANOS_MAX = 250_000_000;

    private final Map<Integer, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<Integer, KafkaConsumer<byte[], byte[]>> consumers = new HashMap<>();
    private int opened = 0;

    void register(Map<String, Driver.Call> calls) {
        calls.put("producer.open", this::openProducer);
        calls.put("producer.send", this::send);
        calls.put("producer.instance", asked -> producer(asked).clientInstanceId(PATIENCE).toString());
        calls.put("producer.close", asked -> {
            producers.remove(asked.get("handle").asInt()).close(PATIENCE);
            return null;
        });
        calls.put("consumer.open", this::openConsumer);
        calls.put("consumer.poll", this::poll);
        calls.put("consumer.seek", this::seek);
        calls.put("consumer.position", asked -> consumer(asked).position(partition(asked), PATIENCE));
        calls.put("consumer.edges", this::edges);
        calls.put("consumer.offset_for_time", this::offsetForTime);
        calls.put("consumer.topics", this::topics);
        calls.put("consumer.instance", asked -> consumer(asked).clientInstanceId(PATIENCE).toString());
        calls.put("consumer.close", asked -> {
            consumers.remove(asked.get("handle").asInt()).close(CloseOptions.timeout(Duration.ZERO));
            return null;
        });
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode asked) {
        return producers.get(asked.get("handle").asInt());
    }

    private KafkaConsumer<byte[], byte[]> consumer(JsonNode asked) {
        return consumers.get(asked.get("handle").asInt());
    }

    private Object openProducer(JsonNode asked) {
        var serializer = new ByteArraySerializer();
        producers.put(++opened, new KafkaProducer<>(settings(asked), serializer, serializer));
        return opened;
    }

    private Object openConsumer(JsonNode asked) throws Exception {
        var deserializer = new ByteArrayDeserializer();
        consumers.put(++opened, new KafkaConsumer<>(settings(asked), deserializer, deserializer));
        if (asked.has("topic")) {
            consumers.get(opened).assign(List.of(partition(asked)));
            place(consumers.get(opened), partition(asked), asked.get("start"));
        }
        return opened;
    }

    private static Map<String, Object> settings(JsonNode asked) {
        Map<String, Object> settings = new HashMap<>();
        asked.get("settings").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    private Object send(JsonNode asked) throws Exception {
        List<Future<RecordMetadata>> sends = new ArrayList<>();
        for (JsonNode record : asked.get("records")) {
            sends.add(producer(asked).send(toSend(partition(asked), record)));
        }
        producer(asked).flush();
        List<Object> acknowledged = new ArrayList<>();
        for (Future<RecordMetadata> send : sends) {
            RecordMetadata done = send.get();
            acknowledged.add(List.of(done.offset(), done.timestamp()));
        }
        return acknowledged;
    }

    private static ProducerRecord<byte[], byte[]> toSend(TopicPartition partition, JsonNode record) throws Exception {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), header.get(1).binaryValue()));
        }
        Long timestamp = record.get("timestamp").isNull() ? null : record.get("timestamp").asLong();
        return new ProducerRecord<>(partition.topic(), partition.partition(), timestamp,
            record.get("key").binaryValue(), record.get("value").binaryValue(), headers);
    }

    /** Until `count` records came or `wait_ms` are over. The new consumer may miss in one long poll what it sought. */
    private Object poll(JsonNode asked) {
        long deadline = System.nanoTime() + asked.get("wait_ms").asLong() * 1_000_000;
        List<Object> records = new ArrayList<>();
        while (records.size() < asked.get("count").asInt() && System.nanoTime() < deadline) {
            long left = Math.max(0, deadline - System.nanoTime());
            consumer(asked).poll(Duration.ofNanos(Math.min(left, POLL_NANOS_MAX)))
                .forEach(record -> records.add(received(record)));
        }
        return records;
    }

    private static Map<String, Object> received(ConsumerRecord<byte[], byte[]> record) {
        List<List<Object>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(text(header.value()));
            headers.add(pair);
        }
        Map<String, Object> answer = new HashMap<>();
        answer.put("offset", record.offset());
        answer.put("key", text(record.key()));
        answer.put("value", text(record.value()));
        answer.put("headers", headers);
        answer.put("timestamp", record.timestamp());
        answer.put("timestamp_type", record.timestampType().name);
        return answer;
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private Object seek(JsonNode asked) {
        place(consumer(asked), partition(asked), asked.get("start"));
        return null;
    }

    private static void place(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, JsonNode start) {
        switch (start.asText()) {
            case "earliest" -> consumer.seekToBeginning(List.of(partition));
            case "latest" -> consumer.seekToEnd(List.of(partition));
            default -> consumer.seek(partition, start.asLong());
        }
    }

    private Object edges(JsonNode asked) {
        TopicPartition partition = partition(asked);
        long earliest = consumer(asked).beginningOffsets(List.of(partition), PATIENCE).get(partition);
        return List.of(earliest, consumer(asked).endOffsets(List.of(partition), PATIENCE).get(partition));
    }

    private Object offsetForTime(JsonNode asked) {
        Map<TopicPartition, Long> times = Map.of(partition(asked), asked.get("timestamp").asLong());
        OffsetAndTimestamp found = consumer(asked).offsetsForTimes(times, PATIENCE).get(partition(asked));
        return found == null ? null : found.offset();
    }

    private Object topics(JsonNode asked) {
        Map<String, Integer> counts = new HashMap<>();
        consumer(asked).listTopics(PATIENCE).forEach((name, partitions) -> counts.put(name, partitions.size()));
        return counts;
    }

    private static TopicPartition partition(JsonNode asked) {
        return new TopicPartition(asked.get("topic").asText(), 0);
    }
}
