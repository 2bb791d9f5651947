import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterClientQuotasOptions;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** The Java AdminClient's calls, one admin client per broker address. */
final class Operations {
    private final Map<String, Admin> admins = new HashMap<>();

    interface AdminCall {
        Object on(Admin admin, JsonNode asked) throws Exception;
    }

    void register(Map<String, Driver.Call> calls) {
        Map<String, AdminCall> ours = new HashMap<>();
        registerTopics(ours);
        registerSettings(ours);
        registerSecurity(ours);
        registerPlaces(ours);
        registerQuotas(ours);
        Groups.register(ours);
        ours.forEach((name, call) -> calls.put("admin." + name, asked -> call.on(admin(asked), asked)));
    }

    private Admin admin(JsonNode asked) {
        return admins.computeIfAbsent(asked.get("bootstrap").asText(), address -> Admin.create(
            Map.of("bootstrap.servers", address, "default.api.timeout.ms", "20000", "request.timeout.ms", "15000")));
    }

    private static void registerQuotas(Map<String, AdminCall> calls) {
        calls.put("alter_quotas", (admin, asked) -> {
            List<ClientQuotaAlteration.Op> ops = new ArrayList<>();
            asked.get("values").fields().forEachRemaining(each -> ops.add(new ClientQuotaAlteration.Op(
                each.getKey(), each.getValue().isNull() ? null : each.getValue().asDouble())));
            AlterClientQuotasOptions options =
                new AlterClientQuotasOptions().validateOnly(asked.get("validate_only").asBoolean());
            ClientQuotaAlteration alteration = new ClientQuotaAlteration(new ClientQuotaEntity(entity(asked)), ops);
            return admin.alterClientQuotas(List.of(alteration), options).all().get();
        });
        calls.put("describe_quotas", (admin, asked) -> {
            List<ClientQuotaFilterComponent> wanted = new ArrayList<>();
            entity(asked).forEach((kind, name) -> wanted.add(name == null
                ? ClientQuotaFilterComponent.ofDefaultEntity(kind)
                : ClientQuotaFilterComponent.ofEntity(kind, name)));
            List<Object> found = new ArrayList<>();
            admin.describeClientQuotas(ClientQuotaFilter.containsOnly(wanted)).entities().get().forEach(
                (each, values) -> found.add(Map.of("entity", new TreeMap<>(each.entries()), "values", values)));
            return found;
        });
    }

    private static Map<String, String> entity(JsonNode asked) {
        Map<String, String> entity = new HashMap<>();
        asked.get("entity").fields().forEachRemaining(
            each -> entity.put(each.getKey(), each.getValue().isNull() ? null : each.getValue().asText()));
        return entity;
    }

    private static void registerTopics(Map<String, AdminCall> calls) {
        calls.put("topics", (admin, asked) -> admin.listTopics().names().get());
        calls.put("create_topic", Operations::createTopic);
        calls.put("delete_topic", (admin, asked) -> admin.deleteTopics(topics(asked)).all().get());
        calls.put("describe_topic", (admin, asked) -> describeTopic(admin, topics(asked)));
        calls.put("grow", Operations::grow);
        calls.put("delete_records", (admin, asked) -> admin.deleteRecords(
                Map.of(partition(asked), RecordsToDelete.beforeOffset(asked.get("before").asLong())))
            .lowWatermarks().get(partition(asked)).get().lowWatermark());
        calls.put("offset", Operations::offset);
        calls.put("cluster", Operations::cluster);
        calls.put("elect", Operations::elect);
        calls.put("reassignments", (admin, asked) -> admin.listPartitionReassignments().reassignments().get().size());
        calls.put("producers", Operations::producers);
        calls.put("features", Operations::features);
        calls.put("update_feature", Operations::updateFeature);
    }

    private static Object createTopic(Admin admin, JsonNode asked) throws Exception {
        Map<String, String> settings = texts(asked.get("settings"));
        NewTopic topic = asked.has("assignment")
            ? new NewTopic(asked.get("topic").asText(), assignment(asked.get("assignment")))
            : new NewTopic(asked.get("topic").asText(), Optional.of(asked.get("partitions").asInt()),
                Optional.of((short) asked.get("replicas").asInt()));
        var options = new CreateTopicsOptions().validateOnly(asked.get("validate_only").asBoolean());
        return admin.createTopics(List.of(topic.configs(settings)), options).all().get();
    }

    private static Map<Integer, List<Integer>> assignment(JsonNode replicas) {
        Map<Integer, List<Integer>> assignment = new TreeMap<>();
        for (JsonNode nodes : replicas) {
            List<Integer> ids = new ArrayList<>();
            nodes.forEach(node -> ids.add(node.asInt()));
            assignment.put(assignment.size(), ids);
        }
        return assignment;
    }

    /** By name, or by id where `id` is given. */
    private static TopicCollection topics(JsonNode asked) {
        return asked.has("id")
            ? TopicCollection.ofTopicIds(List.of(Uuid.fromString(asked.get("id").asText())))
            : TopicCollection.ofTopicNames(List.of(asked.get("topic").asText()));
    }

    private static Object describeTopic(Admin admin, TopicCollection topics) throws Exception {
        var described = admin.describeTopics(topics);
        TopicDescription topic = (described.topicNameValues() == null ? described.topicIdValues().values()
            : described.topicNameValues().values()).iterator().next().get();
        List<Object> partitions = new ArrayList<>();
        for (TopicPartitionInfo each : topic.partitions()) {
            partitions.add(List.of(each.partition(), each.leader().id(), ids(each.replicas()), ids(each.isr())));
        }
        return Map.of("name", topic.name(), "id", topic.topicId().toString(), "partitions", partitions);
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).collect(Collectors.toList());
    }

    private static Object grow(Admin admin, JsonNode asked) throws Exception {
        var options = new CreatePartitionsOptions().validateOnly(asked.get("validate_only").asBoolean());
        var partitions = NewPartitions.increaseTo(asked.get("count").asInt());
        return admin.createPartitions(Map.of(asked.get("topic").asText(), partitions), options).all().get();
    }

    private static Object offset(Admin admin, JsonNode asked) throws Exception {
        OffsetSpec place = switch (asked.get("place").asText()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            case "earliest_local" -> OffsetSpec.earliestLocal();
            case "latest_tiered" -> OffsetSpec.latestTiered();
            default -> OffsetSpec.forTimestamp(asked.get("place").asLong());
        };
        var options = new ListOffsetsOptions(IsolationLevel.READ_COMMITTED);
        var found = admin.listOffsets(Map.of(partition(asked), place), options).partitionResult(partition(asked)).get();
        return List.of(found.offset(), found.timestamp());
    }

    private static Object cluster(Admin admin, JsonNode asked) throws Exception {
        var cluster = admin.describeCluster(new DescribeClusterOptions().includeFencedBrokers(true));
        return Map.of("id", cluster.clusterId().get(), "controller", cluster.controller().get().id(), "nodes",
            cluster.nodes().get().stream().map(each -> List.of(each.id(), each.host(), each.port())).toList());
    }

    /** Whether the answer names the partition. */
    private static Object elect(Admin admin, JsonNode asked) throws Exception {
        ElectionType type = asked.get("unclean").asBoolean() ? ElectionType.UNCLEAN : ElectionType.PREFERRED;
        Optional<Throwable> outcome =
            admin.electLeaders(type, Set.of(partition(asked))).partitions().get().get(partition(asked));
        if (outcome != null && outcome.isPresent()) {
            throw new ExecutionException(outcome.get());
        }
        return outcome != null;
    }

    private static Object producers(Admin admin, JsonNode asked) throws Exception {
        List<Object> found = new ArrayList<>();
        for (ProducerState each :
                admin.describeProducers(List.of(partition(asked))).partitionResult(partition(asked)).get()
                    .activeProducers()) {
            found.add(Map.of("id", each.producerId(), "epoch", each.producerEpoch(), "last_sequence",
                each.lastSequence(), "in_transaction", each.currentTransactionStartOffset().isPresent()));
        }
        return found;
    }

    private static Object features(Admin admin, JsonNode asked) throws Exception {
        var features = admin.describeFeatures().featureMetadata().get();
        Map<String, Object> supported = new HashMap<>();
        features.supportedFeatures().forEach((name, range) ->
            supported.put(name, List.of(range.minVersion(), range.maxVersion())));
        Map<String, Object> finalized = new HashMap<>();
        features.finalizedFeatures().forEach((name, range) ->
            finalized.put(name, List.of(range.minVersionLevel(), range.maxVersionLevel())));
        return Map.of("supported", supported, "finalized", finalized);
    }

    private static Object updateFeature(Admin admin, JsonNode asked) throws Exception {
        var update = new FeatureUpdate((short) asked.get("level").asInt(), FeatureUpdate.UpgradeType.UPGRADE);
        var options = new UpdateFeaturesOptions().validateOnly(asked.get("validate_only").asBoolean());
        return admin.updateFeatures(Map.of(asked.get("feature").asText(), update), options).all().get();
    }

    private static void registerSettings(Map<String, AdminCall> calls) {
        calls.put("settings", Operations::settings);
        calls.put("alter", Operations::alter);
        calls.put("resources", (admin, asked) -> {
            Set<ConfigResource.Type> kinds = new HashSet<>();
            asked.get("kinds").forEach(kind -> kinds.add(ConfigResource.Type.valueOf(kind.asText())));
            return admin.listConfigResources(kinds, new ListConfigResourcesOptions())
                .all().get().stream().map(each -> List.of(each.type().name(), each.name())).toList();
        });
    }

    private static ConfigResource resource(JsonNode asked) {
        return new ConfigResource(ConfigResource.Type.valueOf(asked.get("kind").asText()), asked.get("name").asText());
    }

    private static Object settings(Admin admin, JsonNode asked) throws Exception {
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Map<String, Object> settings = new TreeMap<>();
        for (ConfigEntry each :
                admin.describeConfigs(List.of(resource(asked)), options).all().get().get(resource(asked)).entries()) {
            Map<String, Object> setting = new HashMap<>();
            setting.put("value", each.value());
            setting.put("source", each.source().name());
            setting.put("read_only", each.isReadOnly());
            setting.put("sensitive", each.isSensitive());
            setting.put("type", each.type().name());
            setting.put("documentation", each.documentation());
            setting.put("synonyms", each.synonyms().stream().map(synonym ->
                Arrays.asList(synonym.name(), synonym.value(), synonym.source().name())).toList());
            settings.put(each.name(), setting);
        }
        return settings;
    }

    private static Object alter(Admin admin, JsonNode asked) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (JsonNode each : asked.get("changes")) {
            var entry = new ConfigEntry(each.get(1).asText(), each.get(2).isNull() ? null : each.get(2).asText());
            changes.add(new AlterConfigOp(entry, AlterConfigOp.OpType.valueOf(each.get(0).asText())));
        }
        var options = new AlterConfigsOptions().validateOnly(asked.get("validate_only").asBoolean());
        return admin.incrementalAlterConfigs(Map.of(resource(asked), changes), options).all().get();
    }

    private static void registerSecurity(Map<String, AdminCall> calls) {
        calls.put("credentials", (admin, asked) -> {
            Map<String, Object> credentials = new HashMap<>();
            var described = admin.describeUserScramCredentials(
                asked.has("user") ? List.of(asked.get("user").asText()) : null);
            for (String user : asked.has("user") ? List.of(asked.get("user").asText()) : described.users().get()) {
                credentials.put(user, described.description(user).get().credentialInfos().stream()
                    .map(kept -> List.of(kept.mechanism().mechanismName(), kept.iterations())).toList());
            }
            return credentials;
        });
        calls.put("set_credential", (admin, asked) -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion(asked.get("user").asText(), new ScramCredentialInfo(
                mechanism(asked), asked.get("iterations").asInt()), asked.get("password").asText()))).all().get());
        calls.put("remove_credential", (admin, asked) -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion(asked.get("user").asText(), mechanism(asked)))).all().get());
        calls.put("acls", (admin, asked) -> admin.describeAcls(AclBindingFilter.ANY).values().get().size());
        calls.put("create_acl", (admin, asked) -> admin.createAcls(List.of(new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL),
            new AccessControlEntry("User:u", "*", AclOperation.READ, AclPermissionType.ALLOW)))).all().get());
        calls.put("delete_acls",
            (admin, asked) -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get().size());
    }

    private static ScramMechanism mechanism(JsonNode asked) {
        return ScramMechanism.fromMechanismName(asked.get("mechanism").asText());
    }

    private static void registerPlaces(Map<String, AdminCall> calls) {
        calls.put("log_dirs", Operations::logDirs);
        calls.put("move", (admin, asked) -> {
            var replica = new TopicPartitionReplica(asked.get("topic").asText(), 0, asked.get("node").asInt());
            return admin.alterReplicaLogDirs(Map.of(replica, asked.get("path").asText())).all().get();
        });
        calls.put("replica_place", (admin, asked) -> {
            var replica = new TopicPartitionReplica(asked.get("topic").asText(), 0, asked.get("node").asInt());
            return admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica)
                .getCurrentReplicaLogDir();
        });
    }

    private static Object logDirs(Admin admin, JsonNode asked) throws Exception {
        Map<String, Object> places = new TreeMap<>();
        int node = asked.get("node").asInt();
        admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).forEach((path, place) -> {
            Map<String, Object> sizes = new TreeMap<>();
            place.replicaInfos().forEach((partition, replica) -> sizes.put(partition.toString(), replica.size()));
            places.put(path, Map.of("sizes", sizes, "total", place.totalBytes().orElse(-1), "usable",
                place.usableBytes().orElse(-1), "failed", place.error() != null));
        });
        return places;
    }

    private static TopicPartition partition(JsonNode asked) {
        return new TopicPartition(asked.get("topic").asText(), 0);
    }

    private static Map<String, String> texts(JsonNode object) {
        Map<String, String> texts = new HashMap<>();
        object.properties().forEach(each -> texts.put(each.getKey(), each.getValue().asText()));
        return texts;
    }
}
