"""Read back what Weights & Biases and MLflow have recorded of a run, with their own packages.

    python tests/support/logged.py LOGGERS_JSON

It runs in a process of its own, because these packages change the process that imports them. It
prints JSON: for each service, the name and settings of its run, and [iteration, value] pairs by
metric.
"""

import collections
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

_BLOCK = 1 << 15  # bytes of a block of W&B's file
_HEAD = struct.Struct("<IHB")  # before each piece of a record: checksum, size, kind
_LAST = (1, 4)  # kinds of pieces that end a record


def wandb_records(path: Path) -> Iterator:
    """Yield the records of a .wandb file, a log of LevelDB behind seven bytes of a header."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, record = path.read_bytes(), 7, b""
    assert data.startswith(b":W&B")
    while at < len(data):
        if (left := _BLOCK - at % _BLOCK) < _HEAD.size:
            at += left
            continue
        _, size, kind = _HEAD.unpack_from(data, at)
        at += _HEAD.size + size
        record += data[at - size : at]
        if kind in _LAST:
            yield Record.FromString(record)
            record = b""


def wandb(identity: str, folder: Path) -> dict:
    found = {"sessions": 0, "metrics": collections.defaultdict(list)}
    for path in sorted(folder.glob(f"offline-run-*/run-{identity}.wandb")):
        for record in wandb_records(path):
            if record.HasField("run"):
                found["sessions"] += 1
                found |= {"name": record.run.display_name, "group": record.run.project}
                found["settings"] = {
                    each.key: json.loads(each.value_json) for each in record.run.config.update
                }
            elif record.HasField("history"):
                items = record.history.item
                row = {"/".join(each.nested_key): json.loads(each.value_json) for each in items}
                for name, value in row.items():
                    found["metrics"][name].append([row["iteration"], value])
            elif record.HasField("exit"):
                found["status"] = record.exit.exit_code
    return found


def mlflow(identity: str) -> dict:
    from mlflow import MlflowClient

    client = MlflowClient()
    run = client.get_run(identity)
    metrics = {
        name: sorted(
            [point.step, point.value] for point in client.get_metric_history(identity, name)
        )
        for name in run.data.metrics
    }
    return {
        "name": run.info.run_name,
        "group": client.get_experiment(run.info.experiment_id).name,
        "status": run.info.status,
        "settings": run.data.params,
        "metrics": metrics,
    }


if __name__ == "__main__":
    identities = json.loads(Path(sys.argv[1]).read_text())
    print(
        json.dumps(
            {
                "wandb": wandb(identities["wandb"], Path("wandb")),
                "mlflow": mlflow(identities["mlflow"]),
            }
        )
    )
