# SPDX-License-Identifier: Apache-2.0
"""Checks how programs end: exit code, one error line, no rank left waiting.

usage: run_main_test.py PROGRAM MPIEXEC NUMPROC_FLAG
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, MPIEXEC, NUMPROC_FLAG = sys.argv[1:4]
LIMIT_S = 45

CLUSTER = """schema = "ballast.cluster/1"
dilation = 3.0
[links]
node = { latency = "5us", bandwidth = "4GB/s" }
network = { latency = "50us", bandwidth = "400MB/s" }
[[node]]
devices = [ { kind = "large", memory = 2000, count = 2 } ]
[[node]]
devices = [ { kind = "small", memory = 1000, speed = 0.5, count = 2 } ]
"""


class End:
    """What came out of one run."""

    def __init__(self, *arguments, ranks=4, **environment):
        command = [PROGRAM, *arguments]
        if ranks:
            command = [MPIEXEC, NUMPROC_FLAG, str(ranks), *command]
        start = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT_S,
                              env={**os.environ, **environment})
        self.seconds = time.monotonic() - start
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr
        self.errors = [line for line in (done.stdout + done.stderr).splitlines() if "ballast: error:" in line]

    def __str__(self):
        return f"code {self.code} after {self.seconds:.1f} s\n{self.out}{self.err}"


class RunMain(unittest.TestCase):
    def expect(self, end, code, error=None):
        """The exit code, and exactly one error line (or none)."""
        self.assertEqual(end.code, code, end)
        self.assertEqual(end.errors, [f"ballast: error: {error}"] if error else [], end)

    def test_a_program_that_ends_well_says_nothing(self):
        for ranks in (None, 1, 4):
            self.expect(End("well", ranks=ranks), 0)

    def test_the_result_of_the_program_is_the_exit_code(self):
        for ranks in (None, 3):
            self.expect(End("code", ranks=ranks), 75)

    def test_an_error_of_all_ranks_is_printed_once(self):
        for ranks in (None, 1, 2, 4):
            self.expect(End("alike", ranks=ranks), 2, "run.toml:3: steps: expected an integer")

    def test_an_error_of_all_ranks_stays_one_when_a_rank_is_late(self):
        end = End("alike-late")
        self.assertEqual(end.code, 65, end)
        self.assertEqual(len(end.errors), 1, end)
        self.assertIn("damaged everywhere", end.errors[0])

    def test_an_error_of_one_rank_wakes_those_that_wait(self):
        for ranks in (2, 4):
            last = ranks - 1
            self.expect(End("one", ranks=ranks), 65, f"rank {last}: damaged here")
            self.expect(End("one-of-receivers", ranks=ranks), 1, f"rank {last}: disk full")

    def test_an_error_that_all_agreed_on_names_the_rank_itself(self):
        self.expect(End("one-in-agreement"), 65, "damaged here (rank 3)")

    def test_an_error_after_the_last_collective_ends_all(self):
        self.expect(End("one-after-all"), 3, "rank 3: nothing fits")

    def test_ranks_that_compute_are_not_waited_for(self):
        for how, rank in (("first-of-busy", 0), ("last-of-busy", 3)):
            end = End(how)
            self.expect(end, 65, f"rank {rank}: damaged here")
            self.assertLess(end.seconds, 15, end)

    def test_the_lowest_of_several_errors_is_printed(self):
        self.expect(End("different"), 65, "rank 0: reason of rank 0")
        self.expect(End("two"), 1, "rank 1: reason of rank 1")

    def test_an_error_of_a_group_ends_all(self):
        self.expect(End("group"), 1, "rank 0: no memory left")

    def test_exceptions_of_others_are_errors_as_well(self):
        self.expect(End("std"), 1, "rank 3: from another library")
        self.expect(End("memory", ranks=2), 1, "out of host memory")
        self.expect(End("int", ranks=2), 1, "an exception of unknown type")
        self.expect(End("int", ranks=None), 1, "an exception of unknown type")

    def test_a_checked_world_notices_different_collectives(self):
        end = End("mismatch", BALLAST_CHECKED="1")
        self.assertEqual(end.code, 1, end)
        self.assertEqual(len(end.errors), 1, end)
        self.assertIn("all_reduce", end.errors[0])
        self.assertEqual(len(End("well", BALLAST_CHECKED="perhaps").errors), 1)


class Cluster(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.file = str(pathlib.Path(self.folder.name, "cluster.toml"))
        pathlib.Path(self.file).write_text(CLUSTER)

    def tearDown(self):
        self.folder.cleanup()

    def test_without_a_description_the_machine_is_what_it_is(self):
        for ranks in (None, 2):
            end = End("topology", ranks=ranks)
            self.assertEqual(end.code, 0, end)
            self.assertIn(f"nodes 1 ranks {ranks or 1} simulated 0 dilation 1 ", end.out)
            self.assertIn("here cpu", end.out)

    def test_a_description_makes_the_cluster(self):
        expected = "nodes 2 ranks 4 simulated 1 dilation 3 memory 1000 here large"
        for end in (End("topology", BALLAST_CLUSTER=self.file), End("topology", self.file),
                    End("topology", self.file, BALLAST_CLUSTER="/nonexistent", BALLAST_CHECKED="1")):
            self.assertEqual(end.code, 0, end)
            self.assertIn(expected, end.out)

    def test_a_wrong_number_of_ranks_is_refused_once(self):
        for end in (End("topology", ranks=3, BALLAST_CLUSTER=self.file), End("well", self.file, ranks=None)):
            self.assertEqual(end.code, 2, end)
            self.assertEqual(len(end.errors), 1, end)
            self.assertIn("describes 4 devices", end.errors[0])

    def test_a_description_that_is_missing_or_wrong_is_refused_once(self):
        end = End("topology", BALLAST_CLUSTER="/nonexistent/cluster.toml")
        self.assertEqual((end.code, len(end.errors)), (2, 1), end)
        self.assertIn("/nonexistent/cluster.toml", end.errors[0])
        pathlib.Path(self.file).write_text(CLUSTER.replace("dilation = 3.0", "dilation = -3.0"))
        end = End("topology", BALLAST_CLUSTER=self.file)
        self.assertEqual((end.code, len(end.errors)), (2, 1), end)
        self.assertIn(f"{self.file}:2: dilation", end.errors[0])

    def test_a_description_comes_before_the_world_is_used(self):
        end = End("late-cluster")
        self.assertEqual((end.code, len(end.errors)), (2, 1), end)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
