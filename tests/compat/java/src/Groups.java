import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberAssignment;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;

/** The Java AdminClient's calls about consumer groups. */
final class Groups {
    private Groups() {}

    static void register(Map<String, Operations.AdminCall> calls) {
        calls.put("groups", Groups::list);
        calls.put("consumer_groups", (admin, asked) -> admin.listGroups(ListGroupsOptions.forConsumerGroups())
            .all().get().stream().map(each -> each.groupId()).toList());
        calls.put("consumer_groups_as_of_old", Groups::listAsOfOld);
        calls.put("describe_group", Groups::describe);
        calls.put("describe_classic_group", Groups::describeClassic);
        calls.put("group_offsets", Groups::offsets);
        calls.put("alter_group_offsets", (admin, asked) ->
            admin.alterConsumerGroupOffsets(group(asked), Members.offsets(asked.get("offsets"))).all().get());
        calls.put("delete_groups", (admin, asked) ->
            codes(admin.deleteConsumerGroups(names(asked.get("groups"))).deletedGroups()));
        calls.put("delete_group_offsets", Groups::deleteOffsets);
        calls.put("remove_members", Groups::removeMembers);
    }

    private static String group(JsonNode asked) {
        return asked.get("group").asText();
    }

    private static Set<String> names(JsonNode array) {
        Set<String> names = new HashSet<>();
        array.forEach(each -> names.add(each.asText()));
        return names;
    }

    private static Object list(Admin admin, JsonNode asked) throws Exception {
        Set<GroupState> states = new HashSet<>();
        asked.get("states").forEach(each -> states.add(GroupState.parse(each.asText())));
        Set<GroupType> types = new HashSet<>();
        asked.get("types").forEach(each -> types.add(GroupType.parse(each.asText())));
        Map<String, Object> found = new TreeMap<>();
        for (var each : admin.listGroups(new ListGroupsOptions().inGroupStates(states).withTypes(types)).all().get()) {
            found.put(each.groupId(), List.of(each.type().map(GroupType::toString).orElse(""), each.protocol(),
                each.groupState().map(GroupState::toString).orElse("")));
        }
        return found;
    }

    /** By the call that programs written before Kafka 4.1 have. */
    @SuppressWarnings("removal")
    private static Object listAsOfOld(Admin admin, JsonNode asked) throws Exception {
        return admin.listConsumerGroups().all().get().stream().map(each -> each.groupId()).toList();
    }

    private static Object describe(Admin admin, JsonNode asked) throws Exception {
        var group = admin.describeConsumerGroups(List.of(group(asked))).describedGroups().get(group(asked)).get();
        Map<String, Object> answer = new HashMap<>();
        answer.put("type", group.type().toString());
        answer.put("state", group.groupState().toString());
        answer.put("assignor", group.partitionAssignor());
        answer.put("coordinator", group.coordinator().id());
        answer.put("epoch", group.groupEpoch().orElse(null));
        answer.put("target_epoch", group.targetAssignmentEpoch().orElse(null));
        answer.put("members", group.members().stream().map(Groups::member).toList());
        return answer;
    }

    private static Object describeClassic(Admin admin, JsonNode asked) throws Exception {
        var group = admin.describeClassicGroups(List.of(group(asked))).describedGroups().get(group(asked)).get();
        return Map.of("state", group.state().toString(), "protocol", group.protocol(), "protocol_data",
            group.protocolData(), "coordinator", group.coordinator().id(), "members",
            group.members().stream().map(Groups::member).toList());
    }

    private static Object member(MemberDescription member) {
        Map<String, Object> answer = new HashMap<>();
        answer.put("id", member.consumerId());
        answer.put("instance", member.groupInstanceId().orElse(null));
        answer.put("client", member.clientId());
        answer.put("host", member.host());
        answer.put("assigned", pairs(member.assignment()));
        answer.put("target", member.targetAssignment().map(Groups::pairs).orElse(null));
        answer.put("epoch", member.memberEpoch().orElse(null));
        answer.put("upgraded", member.upgraded().orElse(null));
        return answer;
    }

    private static List<List<Object>> pairs(MemberAssignment assignment) {
        List<List<Object>> pairs = new ArrayList<>();
        assignment.topicPartitions().forEach(each -> pairs.add(List.of(each.topic(), each.partition())));
        return pairs;
    }

    /** Of many groups by one call; a group without partitions means all of its partitions. */
    private static Object offsets(Admin admin, JsonNode asked) throws Exception {
        Map<String, ListConsumerGroupOffsetsSpec> wanted = new HashMap<>();
        asked.get("groups").properties().forEach(each -> wanted.put(each.getKey(), each.getValue().isNull()
            ? new ListConsumerGroupOffsetsSpec()
            : new ListConsumerGroupOffsetsSpec().topicPartitions(Members.partitions(each.getValue()))));
        Map<String, Object> found = new HashMap<>();
        var options = new ListConsumerGroupOffsetsOptions().requireStable(asked.get("stable").asBoolean());
        admin.listConsumerGroupOffsets(wanted, options).all().get()
            .forEach((group, offsets) -> found.put(group, Members.rows(offsets)));
        return found;
    }

    private static Object deleteOffsets(Admin admin, JsonNode asked) throws Exception {
        Collection<TopicPartition> partitions = Members.partitions(asked.get("partitions"));
        var deleted = admin.deleteConsumerGroupOffsets(group(asked), new HashSet<>(partitions));
        Map<String, KafkaFuture<Void>> outcomes = new HashMap<>();
        partitions.forEach(each -> outcomes.put(each.toString(), deleted.partitionResult(each)));
        return codes(outcomes);
    }

    private static Object removeMembers(Admin admin, JsonNode asked) throws Exception {
        if (asked.get("instances").isNull()) {
            return admin.removeMembersFromConsumerGroup(group(asked), new RemoveMembersFromConsumerGroupOptions())
                .all().get();
        }
        List<MemberToRemove> members = names(asked.get("instances")).stream().map(MemberToRemove::new).toList();
        var removed = admin.removeMembersFromConsumerGroup(group(asked),
            new RemoveMembersFromConsumerGroupOptions(members));
        Map<String, KafkaFuture<Void>> outcomes = new HashMap<>();
        members.forEach(each -> outcomes.put(each.groupInstanceId(), removed.memberResult(each)));
        return codes(outcomes);
    }

    /** Kafka's error code of each outcome. */
    private static Map<String, Integer> codes(Map<String, KafkaFuture<Void>> outcomes) throws Exception {
        Map<String, Integer> codes = new TreeMap<>();
        for (var each : outcomes.entrySet()) {
            try {
                each.getValue().get();
                codes.put(each.getKey(), 0);
            } catch (ExecutionException refusal) {
                codes.put(each.getKey(), (int) Errors.forException(refusal.getCause()).code());
            }
        }
        return codes;
    }
}
