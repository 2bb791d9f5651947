import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Writes to every partition of a topic in turn until it is stopped, so that members have something to lose. */
final class Feed implements Runnable {
    private static final long PAUSE_MS = 10;
    private static final long PATIENCE_MS = 20_000;

    private final String topic;
    private final int partitions;
    private final KafkaProducer<byte[], byte[]> producer;
    private final List<Future<RecordMetadata>> sent = new ArrayList<>();
    private final Thread thread = new Thread(this, "feed");
    private volatile boolean stopped = false;

    private Feed(JsonNode asked) {
        topic = asked.get("topic").asText();
        partitions = asked.get("partitions").asInt();
        var serializer = new ByteArraySerializer();
        producer = new KafkaProducer<>(Map.of("bootstrap.servers", asked.get("bootstrap").asText(),
            "request.timeout.ms", "10000", "delivery.timeout.ms", "20000"), serializer, serializer);
    }

    /** The first round is awaited record by record: a leader that has just been made may still say no. */
    static Feed start(JsonNode asked) throws Exception {
        var feed = new Feed(asked);
        for (int partition = 0; partition < feed.partitions; partition++) {
            feed.send(partition).get();
        }
        feed.thread.setDaemon(true);
        feed.thread.start();
        return feed;
    }

    @Override
    public void run() {
        try {
            while (!stopped) {
                for (int partition = 0; partition < partitions; partition++) {
                    send(partition);
                }
                Thread.sleep(PAUSE_MS);
            }
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private Future<RecordMetadata> send(int partition) {
        sent.add(producer.send(new ProducerRecord<>(topic, partition, null, new byte[50])));
        return sent.get(sent.size() - 1);
    }

    /** How many records each partition got. */
    Object stop() throws Exception {
        stopped = true;
        thread.join(PATIENCE_MS);
        producer.close();
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
        return sent.size() / partitions;
    }
}
