# SPDX-License-Identifier: Apache-2.0
"""Bad input ends with the right exit code and one error line, on one rank and on four."""
import json

import cli


class UsageErrors(cli.CliTest):
    def check(self, code, expected, *arguments, **keywords):
        for ranks in (0, 4):
            with self.subTest(arguments=arguments, ranks=ranks):
                self.refuse(code, expected, *arguments, ranks=ranks, **keywords)

    def test_words_and_flags(self):
        self.check(2, "expected one of discover")
        self.check(2, 'found "frobnicate"', "frobnicate")
        self.check(2, "profile: expected one of collectives, model", "profile")
        self.check(2, "see ballast train --help", "train")
        self.check(2, "see ballast explain --help", "explain", "a.json", "b.json")
        self.check(2, "--frob", "discover", "--frob")

    def test_missing_and_damaged_run_files(self):
        self.check(2, "there is no file missing.toml", "train", "missing.toml")
        self.write("bad.toml", "[model\n")
        self.check(2, "bad.toml:1:", "train", "bad.toml")

    def test_run_file_errors_name_line_and_key(self):
        self.write_run(cli.RUN.replace("steps = 6", "stepz = 6"))
        self.check(2, "run.toml:11: [train] stepz: unknown key; known here:", "train", "run.toml")
        self.write_run(cli.RUN.replace("steps = 6", 'steps = "many"'))
        self.check(2, 'run.toml:11: [train] steps: expected an integer >= 1, found "many"', "train", "run.toml")
        self.write_run(cli.RUN + "[trian]\nsteps = 1\n")
        self.refuse(2, "trian", "train", "run.toml", ranks=0)
        self.write_run(cli.RUN.replace('kind = "gpt"', 'kind = "gtp"'))
        self.refuse(2, "expected one of gpt, mlp", "train", "run.toml", ranks=0)
        self.write_run(cli.RUN.replace("heads = 2", "heads = 3"))
        self.refuse(2, "a multiple of the number of heads", "train", "run.toml", ranks=0)
        self.write_run(cli.RUN.replace('"text.txt"', '"nothing.txt"'))
        self.check(2, "nothing.txt", "train", "run.toml")

    def test_overrides(self):
        self.write_run()
        self.refuse(2, "--set train.steps", "train", "run.toml", "--set", "train.steps=many", ranks=0)
        self.refuse(2, "[train] has no key stepz", "train", "run.toml", "--set", "train.stepz=1", ranks=0)
        self.refuse(2, "section.key=value", "train", "run.toml", "--set", "nonsense", ranks=0)
        self.refuse(2, "--steps", "train", "run.toml", "--steps", "0", ranks=0)
        self.check(2, "BALLAST_TRAIN_STEPS", "train", "run.toml", env={"BALLAST_TRAIN_STEPS": "many"})

    def test_ranks_with_different_variables(self):
        self.write_run()
        for value, expected in ("many", "expected an integer"), ("7", "other settings than rank 0"):
            arguments = ["train", "run.toml", ":", "-n", "1", "-x", f"BALLAST_TRAIN_STEPS={value}", cli.BALLAST, "train",
                         "run.toml"]
            self.refuse(2, expected, *arguments, ranks=1)

    def test_ranks_that_do_not_match_the_cluster(self):
        self.write_run()
        self.refuse(2, "mpirun -n 4", "train", "run.toml", "--cluster", "cluster4.toml", ranks=0)
        self.refuse(2, "4 devices", "train", "run.toml", "--cluster", "cluster4.toml", ranks=2)
        self.refuse(2, "4 devices", "discover", ranks=2, env={"BALLAST_CLUSTER": "cluster4.toml"})
        self.check(2, "there is no file none.toml", "discover", "--cluster", "none.toml")
        self.write("bad.toml", 'schema = "ballast.cluster/1"\n')
        self.check(2, "bad.toml", "discover", "--cluster", "bad.toml")

    def test_damaged_values(self):
        self.write("plan.json", "{")
        self.check(65, "plan.json:1:", "explain", "plan.json")
        self.write("plan.json", '{"schema": "ballast.plan/9"}')
        self.check(65, "ballast.plan/1", "explain", "plan.json")
        self.check(2, "there is no file", "simulate", "missing.json")
        self.check(2, "need each other", "plan", "--model", "plan.json")
        self.write("topology.json", "[]")
        self.check(65, "topology.json", "plan", "--model", "plan.json", "--topology", "topology.json", "--batch", "4")

    def test_checkpoints_that_are_not_there(self):
        self.check(2, "there is no checkpoint in nowhere", "checkpoint", "inspect", "nowhere")
        self.check(2, "there is no checkpoint in nowhere", "checkpoint", "verify", "nowhere")


class PlanErrors(cli.CliTest):
    """One profiled model, planned for other machines."""

    def setUp(self):
        super().setUp()
        self.write_run()
        self.succeed("plan", "run.toml", "--values", "values", "--cluster", "cluster2.toml", ranks=2)
        self.plan = ("plan", "--model", "values/model.json", "--topology", "values/topology.json")

    def test_plans_that_cannot_be(self):
        self.refuse(2, "--batch", *self.plan, ranks=0)
        self.refuse(2, "7", *self.plan, "--batch", "7", "--set", "plan.micro_batches=[2]", ranks=0)
        topology = json.loads((self.folder / "values/topology.json").read_text())
        for device in topology["devices"]:
            device["memory_bytes"] = 1000
        self.write("values/topology.json", json.dumps(topology))
        for ranks in (0, 4):
            self.refuse(3, "B", *self.plan, "--batch", "4", ranks=ranks)

    def test_verbs_on_files_do_not_mind_a_described_cluster(self):
        result = self.succeed(*self.plan, "--batch", "4", ranks=0, env={"BALLAST_CLUSTER": "cluster4.toml"})
        self.assertEqual(result.stderr, "")
        self.refuse(2, "[cluster] is not used here", *self.plan, "--batch", "4", "--cluster", "cluster4.toml", ranks=0)

    def test_given_plans_that_do_not_fit_the_run(self):
        self.refuse(2, "global batch", "train", "run.toml", "--plan", "values/plan.json", "--set", "train.global_batch=8",
                    "--cluster", "cluster2.toml", ranks=2)
        self.refuse(2, "another model", "train", "run.toml", "--plan", "values/plan.json", "--set", "model.channels=32",
                    "--cluster", "cluster2.toml", ranks=2)
        # A group of two, whatever the measured times would have chosen.
        self.succeed(*self.plan, "--batch", "4", "--set", "plan.group_size=2", "-o", "values/two.json", ranks=0)
        self.refuse(2, "the plan cannot run", "train", "run.toml", "--plan", "values/two.json", ranks=1)
        plan = (self.folder / "values/plan.json").read_text()
        self.write("values/plan.json", plan[: len(plan) // 2])
        self.refuse(65, "values/plan.json", "train", "run.toml", "--plan", "values/plan.json", "--cluster",
                    "cluster2.toml", ranks=2)

    def test_output_that_cannot_be_written(self):
        self.refuse(1, "no/such", "explain", "values/plan.json", "-o", "no/such/file", ranks=4)


if __name__ == "__main__":
    cli.main()
