import java.io.IOException;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams, exactly once: each record of a topic goes to a second one turned around, and how many its key has
 * had so far to a third. It ends with its standard input.
 *
 * <p>Arguments: bootstrap, application id, state directory, source, target, counts.
 */
public final class Chain {
    private static final long WORK_MS = 1;

    private Chain() {}

    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        settings.putAll(Map.of(
            "bootstrap.servers", arguments[0],
            "application.id", arguments[1],
            "state.dir", arguments[2],
            "processing.guarantee", "exactly_once_v2",
            "num.stream.threads", "2",
            "statestore.cache.max.bytes", "0",
            "consumer.auto.offset.reset", "earliest",
            "main.consumer.max.poll.records", "20",
            "commit.interval.ms", "300",
            "producer.linger.ms", "0"));
        // The dead are waited for as long: members of the group, and transactions of an instance that is gone.
        settings.putAll(Map.of(
            "main.consumer.session.timeout.ms", "6000",
            "main.consumer.heartbeat.interval.ms", "1000",
            "producer.transaction.timeout.ms", "6000"));
        var ended = new CountDownLatch(1);
        try (var streams = new KafkaStreams(chain(arguments[3], arguments[4], arguments[5]).build(), settings)) {
            streams.setStateListener((now, before) -> {
                if (now == KafkaStreams.State.ERROR) {
                    ended.countDown();
                }
            });
            streams.start();
            var input = new Thread(() -> {
                awaitEnd();
                ended.countDown();
            });
            input.setDaemon(true);
            input.start();
            ended.await();
        }
    }

    private static StreamsBuilder chain(String source, String target, String counts) {
        var builder = new StreamsBuilder();
        KStream<String, String> records = builder.stream(
            source, Consumed.with(Serdes.String(), Serdes.String()));
        records.peek((key, value) -> work())
            .mapValues(value -> new StringBuilder(value).reverse().toString())
            .to(target, Produced.with(Serdes.String(), Serdes.String()));
        records.groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counted")))
            .toStream()
            .mapValues(String::valueOf)
            .to(counts, Produced.with(Serdes.String(), Serdes.String()));
        return builder;
    }

    private static void work() {
        try {
            Thread.sleep(WORK_MS);
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private static void awaitEnd() {
        try {
            while (System.in.read() >= 0) {}
        } catch (IOException gone) {
            return;
        }
    }
}
