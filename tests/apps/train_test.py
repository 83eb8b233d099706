# SPDX-License-Identifier: Apache-2.0
"""Training by the command line: stop and resume, on other numbers of ranks, reports, metrics, damaged checkpoints."""
import json
import math
import os
import signal
import subprocess
import time

import h5py
import numpy

import cli


def datasets(step_directory):
    """The content of all HDF5 files, by file and data set; h5py is not our reader."""
    result = {}
    for path in sorted(step_directory.glob("*.h5")):
        with h5py.File(path) as file:
            def visit(name, item, path=path):
                if isinstance(item, h5py.Dataset):
                    result[path.name, name] = numpy.array(item)
            file.visititems(visit)
    return result


class Training(cli.CliTest):
    def setUp(self):
        super().setUp()
        self.write_run()

    def train(self, ranks, *arguments, code=0, **keywords):
        result = self.ballast("train", "run.toml", "--cluster", f"cluster{ranks}.toml", *arguments, ranks=ranks, **keywords)
        self.assertEqual(result.code, code, result.stdout + result.stderr)
        return result

    def assert_same_step(self, left, right, step):
        left = datasets(self.folder / left / f"step-{step:08d}")
        right = datasets(self.folder / right / f"step-{step:08d}")
        self.assertGreater(len(left), 4)
        self.assertEqual(left.keys(), right.keys())
        for name, values in left.items():
            self.assertTrue(numpy.array_equal(values, right[name]), name)

    def test_a_stopped_and_resumed_run_equals_one_that_was_not(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                whole, parts = f"whole{ranks}", f"parts{ranks}"
                self.train(ranks, "--set", f"checkpoint.directory={whole}")
                # The same plan, as measured times and with them the plan differ from run to run.
                plan = ("--plan", f"{whole}/plan.json", "--set", f"checkpoint.directory={parts}")
                stopped = self.train(ranks, *plan, "--stop-at", "3", code=75)
                self.assertIn("start me again", stopped.stderr)
                resumed = self.train(ranks, *plan, "--json")
                self.assertIn("resumed after step 3", resumed.stderr)
                self.assertEqual(resumed.json()["first_step"], 3)
                self.assertEqual(resumed.json()["num_steps"], 3)
                self.assert_same_step(whole, parts, 6)

                lines = [json.loads(line) for line in (self.folder / parts / "metrics.jsonl").read_text().splitlines()]
                uncut = [json.loads(line) for line in (self.folder / whole / "metrics.jsonl").read_text().splitlines()]
                self.assertEqual([line["step"] for line in lines], [1, 2, 3, 4, 5, 6])
                self.assertEqual([line["loss"] for line in lines], [line["loss"] for line in uncut])

    def test_a_checkpoint_of_two_ranks_goes_on_with_four_and_with_one(self):
        self.train(2, "--stop-at", "3", code=75)
        four = self.train(4, "--stop-at", "5", code=75)
        self.assertIn("resumed after step 3", four.stderr)
        self.assertIn("another cluster", four.stderr)
        one = self.succeed("train", "run.toml", "--json", ranks=0)
        self.assertIn("resumed after step 5", one.stderr)
        self.assertEqual(one.json()["first_step"], 5)

    def test_the_report_holds_predicted_and_measured(self):
        report = self.train(2, "--json", "-o", "report.json").json()
        self.assertEqual(report, json.loads((self.folder / "report.json").read_text()))
        self.assertEqual(report["schema"], "ballast.run/1")
        self.assertTrue(math.isfinite(report["validation_loss"]))
        self.assertGreater(report["measured_step_s"], 0)
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [0, 1])
        for rank in report["ranks"]:
            self.assertLessEqual(rank["measured_peak_bytes"], rank["predicted_peak_bytes"])
            self.assertLessEqual(rank["predicted_peak_bytes"], rank["capacity_bytes"])

        again = self.train(2)
        self.assertIn("plan of the last run", again.stderr)
        self.assertIn("0 steps after step 6", again.stdout)
        for name in ("topology", "collectives", "model", "plan"):
            path = self.folder / "checkpoints" / f"{name}.json"
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            json.loads(path.read_text())
        self.assertEqual(os.stat(self.folder / "checkpoints").st_mode & 0o777, 0o700)

        never = self.ballast("train", "run.toml", "--cluster", "cluster2.toml", "--resume", "never", ranks=2)
        self.assertEqual(never.code, 2, never.stderr)

    def test_a_signal_stops_after_the_step_with_a_checkpoint(self):
        # mpirun itself, as timeout would not pass the signal on; the ranks end without it after some seconds.
        command = [cli.MPIRUN, "-n", "2", cli.BALLAST, "train", "run.toml", "--cluster", "cluster2.toml", "--steps", "20000"]
        with open(self.folder / "log", "w") as log:
            process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            metrics = self.folder / "checkpoints" / "metrics.jsonl"
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                if metrics.exists() and metrics.read_text().count("\n") > 2:
                    break
                time.sleep(0.1)
            process.send_signal(signal.SIGUSR1)  # mpirun passes it on to all ranks
            process.wait(timeout=60)
        self.assertEqual(process.returncode, 75, (self.folder / "log").read_text())
        steps = self.succeed("checkpoint", "inspect", "checkpoints", "--json", ranks=0).json()["steps"]
        self.assertEqual(len(steps), 1)
        self.assertGreater(steps[0]["step"], 2)
        self.assertLess(steps[0]["step"], 20000)

    def test_checkpoints_are_kept_inspected_and_verified(self):
        self.train(2, "--set", "checkpoint.every=1", "--set", "checkpoint.keep=2")
        steps = self.succeed("checkpoint", "inspect", "checkpoints", "--json", ranks=0).json()["steps"]
        self.assertEqual([step["step"] for step in steps], [5, 6])
        text = self.succeed("checkpoint", "inspect", "checkpoints", ranks=4).stdout
        self.assertEqual(text.count("committed"), 2)
        self.assertIn("parameters/embed", text)
        self.succeed("checkpoint", "verify", "checkpoints", ranks=0)

        file = next((self.folder / "checkpoints" / "step-00000006").glob("*.h5"))
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        for ranks in (0, 4):
            damaged = self.refuse(65, "1 fault", "checkpoint", "verify", "checkpoints", ranks=ranks)
            self.assertIn(file.name, damaged.stdout)
        resumed = self.train(2, "--steps", "7")
        self.assertIn("resumed after step 5", resumed.stderr)

    def test_a_model_with_regression_data(self):
        self.write("mlp.toml", '[model]\nkind = "mlp"\nwidths = [4, 32, 2]\n[data]\nkind = "regression"\nsamples = 500\n'
                               '[train]\nsteps = 40\nglobal_batch = 8\noptimizer = "sgd"\nmomentum = 0.9\nlearning_rate = 0.05\n'
                               'dtype = "float64"\n[cluster]\ncollectives_budget = "0.3s"\n')
        report = self.succeed("train", "mlp.toml", "--json", ranks=2).json()
        first = json.loads((self.folder / "checkpoints" / "metrics.jsonl").read_text().splitlines()[0])
        self.assertLess(report["validation_loss"], first["loss"])

    def test_a_loss_that_is_not_finite_ends_the_run(self):
        self.refuse(1, "loss", "train", "run.toml", "--set", "train.optimizer=sgd", "--set", "train.learning_rate=1e30",
                    ranks=2)


if __name__ == "__main__":
    cli.main()
