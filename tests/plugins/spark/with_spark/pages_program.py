"""The examples and commands of the pages about Spark, taken from the pages, in one of the places where Spark runs.

``python pages_program.py MASTER FOLDER [PAGE…]`` prints ``RAN PAGE:LINE`` for each block that does what its page says, fails in
the first that does not, and prints ``SKIPPED PAGE COMMAND`` for each command that is for another place. MASTER is
``local[2]``, ``spark://…`` or ``sc://…``, whose workers must see FOLDER. Addresses and folders are replaced by this run's.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "tools"))
from served import Served
from snippets import ROOT, Snippet, SnippetList, snippets

from flintmq.plugins.spark import session
from flintmq.tests.support.snippet_runner import commands, is_printed

PAGES = ("README.md", "docs/spark.md", "docs/spark-reference.md", "docs/spark-feed.md", "docs/pipelines.md")
COUNT = 60
"""How many messages each topic has."""
LANDED = 4 * COUNT + 2
"""How many messages all topics have before any block runs."""
LARGE_FROM = 30
"""The first order whose amount the pipeline of the page calls large."""
COMMAND_S = 600.0


def blocks() -> Iterator[Snippet]:
    """Yield the blocks that run: those of which the list of snippets does not say that nothing or another test runs them."""
    excused = SnippetList.read().not_run
    for page in PAGES:
        for one in snippets(ROOT, page):
            why = excused.get(page, {}).get(one.first_line)
            is_about_spark = page != "README.md" or "spark" in one.text
            if is_about_spark and (why is None or "test_pages.py" in why):
                yield one


def settings_of_landing() -> dict[str, Any]:
    """Return the broker's configuration of docs/spark-feed.md."""
    found: dict[str, Any] = {}
    for one in blocks():
        if (one.page, one.language) == ("docs/spark-feed.md", "yaml"):
            found |= yaml.safe_load(one.text)
    return found


def flat(settings: dict[str, Any], before: str = "") -> Iterator[str]:
    """Yield a configuration as settings of the command line."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}={','.join(value) if isinstance(value, list) else value}"


def order(number: int) -> bytes:
    return json.dumps({"id": number, "city": f"c{number % 3}", "amount": number * 30}).encode()


class Reader:
    """Does what the pages say, as a reader would who has a broker and a place where Spark runs."""

    def __init__(self, master: str, folder: Path) -> None:
        self.master = master
        self.folder = folder
        landing = settings_of_landing()
        self.zone = folder / "lake" / "messages"
        assert landing["spark_feed"]["landing"]["path"] == "/lake/messages", landing
        landing["spark_feed"]["landing"]["path"] = str(self.zone)
        self.served = Served(folder / "data", *flat(landing), "flush.strategy=group_commit")
        self.names: dict[str, Any] = {}
        """What the Python blocks of a page have defined."""

    def read_page(self, page: str) -> None:
        work = self.folder / Path(page).stem
        work.mkdir()
        os.chdir(work)
        self.names = {}
        for one in blocks():
            if one.page == page:
                self.run(one, work)
                print(f"RAN {one}", flush=True)
        session(self.master).stop()

    def run(self, one: Snippet, work: Path) -> None:
        text = self.here(one.text, work)
        check = check_of(one)
        {"python": self.python, "sql": self.sql, "console": self.console, "yaml": self.yaml}[one.language](one, text)
        check(self, work)

    def here(self, text: str, work: Path) -> str:
        """Return a block with the addresses and folders of this run."""
        real = {
            "/data/store": str(self.served.folder / "store"),
            "/data/": f"{work}/",
            "/lake/messages": str(self.zone),
            "127.0.0.1:9876": self.served.namesrv,
            "h:9876": self.served.namesrv,
            "local[2]": self.master,
            "local[*]": self.master,
            "spark://HOST:7077": self.master,
            "sc://HOST:15002": self.master,
            "2026-11-22": next((path.name[5:] for path in self.zone.glob("topic=Orders/date=*")), ""),
        }
        return re.sub("|".join(map(re.escape, real)), lambda shown: real[shown[0]], text)

    # --- by language ---

    def python(self, one: Snippet, text: str) -> None:
        """A script; where the page shows nothing but expressions, the value of each is kept."""
        import pandas
        import pyarrow.dataset

        if "spark" not in self.names:
            self.names |= {"spark": session(self.master), "pyarrow": pyarrow, "pandas": pandas}
            self.names["rows"] = self.names["spark"].read.format("flintmq").options(
                nameServer=self.served.namesrv, subscribe="orders"
            ).load()  # fmt: skip
        if one.page == "docs/spark-feed.md":
            self.landed()
            text = self.here(one.text, Path.cwd())
            self.names["values"] = [eval(line, self.names) for line in text.splitlines()]
        else:
            exec(compile(text, str(one), "exec"), self.names)

    def sql(self, _one: Snippet, text: str) -> None:
        spark = session(self.master)
        self.names["answers"] = [
            spark.sql(statement).collect() for statement in re.split(r";\s*(?:\n|$)", text) if statement
        ]

    def console(self, one: Snippet, _text: str) -> None:
        self.names["printed"] = printed = []
        for shown, expected in commands(one.text):
            if not self.is_for_this_place(shown):
                print(f"SKIPPED {one.page} {shown}", flush=True)
                continue
            command = self.here(shown, Path.cwd())
            # PySpark leaves a variable of Spark Connect in the environment of this process.
            shell = {name: value for name, value in os.environ.items() if name != "SPARK_CONNECT_MODE_ENABLED"}
            done = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, timeout=COMMAND_S, check=False, env=shell
            )
            assert done.returncode == 0, f"{one}: $ {command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
            missing = [line for line in expected if not is_printed(line, done.stdout)]
            assert not missing, f"{one}: $ {command}\nprinted\n{done.stdout}\nand not\n" + "\n".join(missing)
            printed.append(done.stdout)

    def yaml(self, one: Snippet, text: str) -> None:
        """A pipeline, or a part of one; a broker's configuration is one with which the broker here runs."""
        if one.page == "docs/spark-feed.md":
            return
        if text.startswith("source:"):  # "mixed" is the topic that also has bodies that are not JSON
            text = text.replace("subscribe: Orders", "subscribe: mixed", 1)
        elif not text.startswith("name:"):
            text = f"source: {{path: {self.served.folder / 'store'}, subscribe: mixed}}\n{text}"
        file = Path(f"{one.line}.yaml").absolute()
        file.write_text(text, "utf-8")
        command = ["flintmq", "pipeline", "run", str(file), "--master", self.master]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=False)
        assert done.returncode == 0, f"{one}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"

    def is_for_this_place(self, command: str) -> bool:
        for there in ("spark://", "sc://"):
            if there in command:
                return self.master.startswith(there)
        return not (command.startswith("spark-submit") and self.master.startswith("sc://"))

    # --- what there is ---

    def fill(self) -> None:
        for topic in ("orders", "payments", "Orders"):
            self.served.create_topic(topic)
            for queue_id in range(3):
                bodies = [order(number) for number in range(queue_id, COUNT, 3)]
                self.served.send(topic, bodies, queue_id, tags=f"t{queue_id}")
        self.served.create_topic("mixed")
        self.served.send("mixed", [*map(order, range(COUNT)), b"no JSON", b"{"])
        for topic in ("Out", "LargeOrders"):
            self.served.create_topic(topic)

    def landed(self) -> None:
        """Wait until what was there first has landed; pages before send more, which may land meanwhile."""
        import pyarrow.dataset

        until_s = time.monotonic() + 120
        while True:
            files = list(self.zone.glob("topic=*/date=*/part-*.parquet"))
            found = pyarrow.dataset.dataset([str(path) for path in files]).count_rows() if files else 0
            if found >= LANDED:
                return
            assert time.monotonic() < until_s, (found, files)
            time.sleep(0.2)  # another process lands, and tells nobody here


# --- what must have come of each block ---

Check = Callable[[Reader, Path], None]


def nothing_more(_reader: Reader, _work: Path) -> None:
    """That it ran says all."""


def readme(reader: Reader, _work: Path) -> None:
    assert reader.names["orders"].count() == COUNT


def first_example(reader: Reader, work: Path) -> None:
    query, spark = reader.names["query"], reader.names["spark"]
    query.processAllAvailable()
    query.stop()
    rows = spark.read.parquet(str(work / "orders")).collect()
    assert sorted((row.topic, bytes(row.body)) for row in rows) == sorted(
        (topic, order(number)) for topic in ("orders", "payments") for number in range(COUNT)
    )


def offsets(reader: Reader, work: Path) -> None:
    assert len(reader.names["printed"]) == 4
    batches = [path for path in (work / "checkpoint" / "offsets").iterdir() if path.name.isdigit()]
    read, reset, moved = sorted(batches, key=lambda path: int(path.name))[-3:]
    ends = [json.loads(path.read_text("utf-8").splitlines()[-1]) for path in (read, reset, moved)]
    assert [end["transport"] for end in ends] == ["store", "store", "broker"], ends
    assert ends[0]["phys"] > ends[1]["phys"], ends  # all messages are younger than ten minutes
    assert set(ends[2]["queues"]) == {"orders", "payments"}, ends


def tables(reader: Reader, _work: Path) -> None:
    counted = reader.names["answers"][1]
    assert {row.tags: row[1] for row in counted} == {"t0": 20, "t1": 20, "t2": 20}, counted
    sent = sorted((one.body, one.tags) for one in reader.served.messages("Out"))
    assert sent == [(b"hello", "a"), (b'{"id":1,"name":"x"}', "a")], sent


def zone(reader: Reader, _work: Path) -> None:
    frame, table, pandas_frame = reader.names["values"]
    assert sorted(bytes(row.body) for row in frame.collect()) == sorted(map(order, range(COUNT)))
    assert table.num_rows >= LANDED
    assert len(pandas_frame) >= LANDED


def demo(reader: Reader, _work: Path) -> None:
    made, checked = reader.names["printed"]
    assert "every one of 20000 messages came out" in made, made
    assert "ok, 3 steps, 3 sinks" in checked, checked


def whole_pipeline(reader: Reader, work: Path) -> None:
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(work / "large").to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(LARGE_FROM, COUNT)), rows
    sent = reader.served.messages("LargeOrders")
    assert sorted(json.loads(one.body)["id"] for one in sent) == list(range(LARGE_FROM, COUNT))
    assert {one.tags for one in sent} == {"c0", "c1", "c2"}


def rejects(_reader: Reader, work: Path) -> None:
    import deltalake

    good = deltalake.DeltaTable(str(work / "orders")).to_pyarrow_table().to_pylist()
    assert sorted(row["value"]["id"] for row in good) == list(range(COUNT)), good[:3]
    bad = deltalake.DeltaTable(str(work / "rejects")).to_pyarrow_table().to_pylist()
    assert sorted(row["body"] for row in bad) == [b"no JSON", b"{"], bad


def elsewhere(reader: Reader, _work: Path) -> None:
    *ran, checked = reader.names["printed"]
    assert len(ran) == (2 if reader.master.startswith("spark://") else 1)
    for text in ran:
        assert "Aachen" in text, text
    assert "ok, 3 steps, 3 sinks" in checked, checked


def sending(reader: Reader, _work: Path) -> None:
    sent = [one for one in reader.served.messages("Out") if b"city" in one.body]
    assert sorted(json.loads(one.body)["id"] for one in sent) == list(range(COUNT))
    assert {one.tags for one in sent} == {"t0", "t1", "t2"}


CHECKS: dict[tuple[str, str], Check] = {
    ("README.md", "from flintmq.plugins.spark import"): readme,
    ("docs/spark.md", "from flintmq.plugins.spark import"): first_example,
    ("docs/spark.md", "$ flintmq spark offsets"): offsets,
    ("docs/spark-reference.md", "CREATE TABLE"): tables,
    ("docs/spark-feed.md", "dispatchers:"): nothing_more,
    ("docs/spark-feed.md", "spark.read.parquet"): zone,
    ("docs/pipelines.md", "$ flintmq pipeline demo"): demo,
    ("docs/pipelines.md", "name: orders"): whole_pipeline,
    ("docs/pipelines.md", "source: {path: /data/store, subscribe: Orders, badRecords: keep}"): rejects,
    ("docs/pipelines.md", "$ flintmq pipeline run demo/demo.yaml --master"): elsewhere,
    ("docs/pipelines.md", "rows.selectExpr"): sending,
}
"""By page and the beginning of a block."""


def check_of(one: Snippet) -> Check:
    """Return the check of what a block does. Raises ValueError if the block does not have exactly one check."""
    (check,) = (check for (page, begin), check in CHECKS.items() if page == one.page and one.text.startswith(begin))
    return check


def main(master: str, folder: Path, *pages: str) -> None:
    folder.mkdir(parents=True)
    reader = Reader(master, folder)
    with reader.served:
        reader.fill()
        for page in pages or PAGES:
            reader.read_page(page)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).absolute(), *sys.argv[3:])
