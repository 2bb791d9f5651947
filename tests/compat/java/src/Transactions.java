import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers by their handles; a member that consumes, transforms and produces; a reader. */
final class Transactions {
    private static final Duration POLL = Duration.ofMillis(500);
    private static final Duration CLOSING = Duration.ofSeconds(5);
    private static final int ABORTED_EVERY = 3;

    private final Map<Integer, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<Integer, CompletableFuture<Object>> followers = new HashMap<>();
    private int opened = 0;

    void register(Map<String, Driver.Call> calls) {
        calls.put("transactions.open", unwrapped(this::open));
        calls.put("transactions.begin", unwrapped(asked -> {
            producer(asked).beginTransaction();
            return null;
        }));
        calls.put("transactions.send", unwrapped(this::send));
        calls.put("transactions.offsets", unwrapped(this::sendOffsets));
        calls.put("transactions.commit", unwrapped(asked -> {
            producer(asked).commitTransaction();
            return null;
        }));
        calls.put("transactions.abort", unwrapped(asked -> {
            producer(asked).abortTransaction();
            return null;
        }));
        calls.put("transactions.close", asked -> {
            producers.remove(asked.get("handle").asInt()).close(CLOSING);
            return null;
        });
        calls.put("transactions.transform", unwrapped(Transactions::transform));
        calls.put("transactions.follow", asked -> {
            followers.put(++opened, CompletableFuture.supplyAsync(() -> read(asked)));
            return opened;
        });
        calls.put("transactions.followed", asked -> followers.remove(asked.get("handle").asInt()).get());
    }

    /** A producer that is in an error state tells of it around the error. */
    private static Driver.Call unwrapped(Driver.Call call) {
        return asked -> {
            try {
                return call.on(asked);
            } catch (ApiException told) {
                throw told;
            } catch (KafkaException around) {
                throw around.getCause() instanceof ApiException cause ? cause : around;
            }
        };
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode asked) {
        return producers.get(asked.get("handle").asInt());
    }

    private Object open(JsonNode asked) {
        String bootstrap = asked.get("bootstrap").asText();
        producers.put(++opened, open(bootstrap, asked.get("id").asText(), asked.get("timeout_ms").asText()));
        return opened;
    }

    private static KafkaProducer<byte[], byte[]> open(String bootstrap, String id, String timeoutMs) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "transactional.id", id,
            "transaction.timeout.ms", timeoutMs, "linger.ms", "0");
        var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        return producer;
    }

    private Object send(JsonNode asked) throws Exception {
        List<Future<RecordMetadata>> sends = new ArrayList<>();
        for (JsonNode value : asked.get("values")) {
            sends.add(producer(asked).send(new ProducerRecord<>(
                asked.get("topic").asText(), asked.get("partition").asInt(), null, value.binaryValue())));
        }
        for (Future<RecordMetadata> each : sends) {
            each.get();
        }
        return null;
    }

    private Object sendOffsets(JsonNode asked) {
        var group = new ConsumerGroupMetadata(asked.get("group").asText());
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode each : asked.get("offsets")) {
            offsets.put(Members.partition(each), new OffsetAndMetadata(each.get(2).asLong()));
        }
        producer(asked).sendOffsetsToTransaction(offsets, group);
        return null;
    }

    private static KafkaConsumer<byte[], byte[]> reader(String bootstrap, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap,
            "isolation.level", "read_committed", "enable.auto.commit", "false", "auto.offset.reset", "earliest"));
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** What comes of a record is its bytes from the end to the start, in the partition of the record. */
    private static Object transform(JsonNode asked) {
        String bootstrap = asked.get("bootstrap").asText();
        String group = asked.get("group").asText();
        Map<String, Object> member = Map.of("group.id", group, "group.protocol", asked.get("protocol").asText(),
            "max.poll.records", asked.get("size").asText());
        int ended = 0;
        try (var producer = open(bootstrap, group + "-transformer", "60000");
                var consumer = reader(bootstrap, member)) {
            consumer.subscribe(List.of(asked.get("source").asText()));
            for (int done = 0; done < asked.get("count").asInt();) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    producer.send(new ProducerRecord<>(
                        asked.get("target").asText(), record.partition(), null, turned(record.value())));
                }
                producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
                if (++ended % ABORTED_EVERY != 0) {
                    producer.commitTransaction();
                    done += records.count();
                } else {
                    producer.abortTransaction();
                    for (TopicPartition partition : records.partitions()) {
                        consumer.seek(partition, records.records(partition).get(0).offset());
                    }
                }
            }
        }
        return ended;
    }

    private static byte[] turned(byte[] value) {
        byte[] result = new byte[value.length];
        for (int index = 0; index < value.length; index++) {
            result[index] = value[value.length - 1 - index];
        }
        return result;
    }

    private static Object read(JsonNode asked) {
        byte[] last = Base64.getDecoder().decode(asked.get("last").asText());
        long deadline = System.nanoTime() + asked.get("wait_ms").asLong() * 1_000_000;
        List<String> values = new ArrayList<>();
        try (var consumer = reader(asked.get("bootstrap").asText(), Map.of())) {
            consumer.assign(List.of(Members.partition(asked.get("place"))));
            while (System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    if (Arrays.equals(record.value(), last)) {
                        return values;
                    }
                    values.add(Base64.getEncoder().encodeToString(record.value()));
                }
            }
        }
        throw new IllegalStateException(values.size() + " records came, and not the last one");
    }
}
