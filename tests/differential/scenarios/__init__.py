"""What is asked of both brokers: one function for each API, run for every version that both serve.

**Invariant:** an API that both serve and that is not in `SCENARIOS` fails the suite.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.differential.case import Case
from tests.differential.scenarios import (
    classic_groups,
    cluster,
    cluster_wide,
    configs,
    consumer_groups,
    group_admin,
    group_offsets,
    offsets,
    partitions,
    records,
    topics,
    transactions,
)

Scenario = Callable[[Case], None]

SCENARIOS: dict[int, Scenario] = {
    0: records.produce,
    1: records.fetch,
    2: offsets.list_offsets,
    3: cluster.metadata,
    8: group_offsets.offset_commit,
    9: group_offsets.offset_fetch,
    10: group_admin.find_coordinator,
    11: classic_groups.join_group,
    12: classic_groups.heartbeat,
    13: classic_groups.leave_group,
    14: classic_groups.sync_group,
    15: group_admin.describe_groups,
    16: group_admin.list_groups,
    18: cluster.api_versions,
    19: topics.create_topics,
    20: topics.delete_topics,
    21: partitions.delete_records,
    22: cluster.init_producer_id,
    23: offsets.offset_for_leader_epoch,
    24: transactions.add_partitions_to_txn,
    25: transactions.add_offsets_to_txn,
    26: transactions.end_txn,
    27: transactions.write_txn_markers,
    28: transactions.txn_offset_commit,
    29: cluster_wide.describe_acls,
    30: cluster_wide.create_acls,
    31: cluster_wide.delete_acls,
    32: configs.describe_configs,
    33: configs.alter_configs,
    34: partitions.alter_replica_log_dirs,
    35: partitions.describe_log_dirs,
    37: partitions.create_partitions,
    42: group_admin.delete_groups,
    43: partitions.elect_leaders,
    44: configs.incremental_alter_configs,
    45: partitions.alter_partition_reassignments,
    46: partitions.list_partition_reassignments,
    47: group_offsets.offset_delete,
    48: cluster_wide.describe_client_quotas,
    49: cluster_wide.alter_client_quotas,
    50: cluster_wide.describe_scram,
    51: cluster_wide.alter_scram,
    57: cluster_wide.update_features,
    60: cluster_wide.describe_cluster,
    61: partitions.describe_producers,
    64: cluster_wide.unregister_broker,
    65: transactions.describe_transactions,
    66: transactions.list_transactions,
    68: consumer_groups.consumer_group_heartbeat,
    69: consumer_groups.consumer_group_describe,
    74: configs.list_config_resources,
    75: partitions.describe_topic_partitions,
}
