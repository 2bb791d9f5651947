"""What every test process and all that it starts have in common: JVMs of Spark that are quick to start.

Such a JVM lives for seconds, and the two processes of `make test` run one each on two cores: there the second
compiler and a collector of many threads cost more than they bring.
"""

from __future__ import annotations

import os

os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
