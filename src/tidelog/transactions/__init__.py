"""The transaction coordinator: a state machine whose state lives in `__transaction_state`.

| file          | what it is                                                                    |
|---------------|-------------------------------------------------------------------------------|
| `transaction` | one transactional id as a value, and its table of transitions                 |
| `records`     | that value as Kafka's record                                                  |
| `state`       | all transactional ids of a partition, as the journal has them                 |
| `init`, `add`, `end` | what each request leads to in each state; functions of values          |
| `ending`      | a prepared transaction: markers that are missing, and clients that wait       |
| `expiry`      | transactional ids that were not used for long                                 |
| `listing`     | which transactions a ListTransactions names                                   |
| `turn`        | one input: when it came, and what it leads to                                 |
| `coordinator` | the machine: commands, timers, expiration                                     |

**Invariant:** a decision is a list of records; nothing changes before they are replayed.
"""
