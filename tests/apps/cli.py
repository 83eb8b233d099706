# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command line share: running the program on some ranks, and a tiny thing to train."""
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BALLAST = MPIRUN = None

CLUSTER = """\
schema = "ballast.cluster/1"
[links]
node = {{ latency = "5us", bandwidth = "4GB/s" }}
network = {{ latency = "50us", bandwidth = "400MB/s" }}
[[node]]
name = "node0"
devices = [ {{ kind = "large", memory = "64MiB", speed = 1.0, count = {large} }} ]
[[node]]
name = "node1"
devices = [ {{ kind = "small", memory = "32MiB", speed = 0.5, count = {small} }} ]
"""

RUN = """\
[model]
kind = "gpt"
layers = 2
heads = 2
channels = 16
context = 16
[data]
kind = "text"
paths = ["text.txt"]
[train]
steps = 6
global_batch = 4
evaluate_batches = 2
[plan]
micro_batches = [1, 2]
[cluster]
collectives_budget = "0.3s"
"""


@dataclasses.dataclass
class Result:
    code: int
    stdout: str
    stderr: str

    def json(self):
        return json.loads(self.stdout)


class CliTest(unittest.TestCase):
    """Each test has a folder of its own, in which programs run."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ballast_cli_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def write_run(self, text=RUN):
        self.write("run.toml", text)
        self.write("text.txt", " ".join(f"{number * number % 977} is a number." for number in range(400)))
        self.write("cluster2.toml", CLUSTER.format(large=1, small=1))
        self.write("cluster4.toml", CLUSTER.format(large=2, small=2))

    def ballast(self, *arguments, ranks=1, env=None, timeout=90):
        """ranks 0: without mpirun."""
        launch = [MPIRUN, "-n", str(ranks)] if ranks else []
        command = ["timeout", "-k", "5", str(timeout), *launch, BALLAST, *map(str, arguments)]
        # To files: ranks that outlive mpirun would keep a pipe open.
        with open(self.folder / "stdout", "w+") as stdout, open(self.folder / "stderr", "w+") as stderr:
            code = subprocess.call(command, cwd=self.folder, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                                   stdout=stdout, stderr=stderr)
            stdout.seek(0)
            stderr.seek(0)
            return Result(code, stdout.read(), stderr.read())

    def succeed(self, *arguments, **keywords):
        result = self.ballast(*arguments, **keywords)
        self.assertEqual(result.code, 0, f"{arguments}: {result.stdout}{result.stderr}")
        return result

    def refuse(self, code, expected, *arguments, **keywords):
        """The program ends with `code` and one error line, which holds `expected`."""
        result = self.ballast(*arguments, **keywords)
        text = f"{arguments} {keywords}: code {result.code}\n{result.stdout}{result.stderr}"
        errors = [line for line in (result.stdout + result.stderr).splitlines() if line.startswith("ballast: error: ")]
        self.assertEqual(result.code, code, text)
        self.assertEqual(len(errors), 1, text)
        self.assertIn(expected, errors[0], text)
        return result


def main():
    global BALLAST, MPIRUN
    MPIRUN = sys.argv.pop(2)
    BALLAST = sys.argv.pop(1)
    unittest.main(verbosity=2)
