import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** Members of consumer groups by their names, and producers that feed them. A partition is {@code [topic, index]}. */
final class Members {
    private static final int AWAIT_TURNS = 20;
    private static final long AWAIT_PAUSE_MS = 10;

    private final Map<String, Member> members = new HashMap<>();
    private final Map<String, Feed> feeds = new HashMap<>();

    void register(Map<String, Driver.Call> calls) {
        calls.put("member.start", asked -> {
            members.put(name(asked), Member.start(asked));
            return null;
        });
        calls.put("member.hold", asked -> member(asked).hold(true));
        calls.put("member.resume", asked -> member(asked).hold(false));
        calls.put("member.commit", asked -> member(asked).commit(offsets(asked.get("offsets")), false));
        calls.put("member.commit_later", asked -> member(asked).commit(offsets(asked.get("offsets")), true));
        calls.put("member.committed", asked -> member(asked).committed(partitions(asked.get("partitions"))));
        calls.put("member.close", asked -> members.remove(name(asked)).close(asked.get("operation").asText()));
        calls.put("history.await", Members::awaitMore);
        calls.put("feed.start", asked -> {
            feeds.put(name(asked), Feed.start(asked));
            return null;
        });
        calls.put("feed.stop", asked -> feeds.remove(name(asked)).stop());
    }

    /** Until the history is longer than {@code size}, but not for long. */
    private static Object awaitMore(JsonNode asked) throws Exception {
        var history = new File(asked.get("history").asText());
        for (int turn = 0; turn < AWAIT_TURNS && history.length() <= asked.get("size").asLong(); turn++) {
            Thread.sleep(AWAIT_PAUSE_MS);
        }
        return null;
    }

    private Member member(JsonNode asked) {
        return members.get(name(asked));
    }

    static String name(JsonNode asked) {
        return asked.get("name").asText();
    }

    static TopicPartition partition(JsonNode pair) {
        return new TopicPartition(pair.get(0).asText(), pair.get(1).asInt());
    }

    static List<TopicPartition> partitions(JsonNode pairs) {
        List<TopicPartition> partitions = new ArrayList<>();
        pairs.forEach(pair -> partitions.add(partition(pair)));
        return partitions;
    }

    /** From {@code [[topic, index, offset, metadata], ...]}. */
    static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode rows) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        rows.forEach(row -> offsets.put(partition(row),
            new OffsetAndMetadata(row.get(2).asLong(), Optional.empty(), row.get(3).asText())));
        return offsets;
    }

    /** As {@code [[topic, index, offset, metadata], ...]}; null where nothing is committed. */
    static List<Object> rows(Map<TopicPartition, OffsetAndMetadata> offsets) {
        List<Object> rows = new ArrayList<>();
        offsets.forEach((partition, kept) -> rows.add(kept == null ? null
            : List.of(partition.topic(), partition.partition(), kept.offset(), kept.metadata())));
        return rows;
    }
}
