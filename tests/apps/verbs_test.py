# SPDX-License-Identifier: Apache-2.0
"""Every verb has help and JSON, and what one verb writes another reads."""
import json

import cli

VERBS = [["discover"], ["profile", "collectives"], ["profile", "model"], ["plan"], ["explain"], ["diff"], ["simulate"],
         ["train"], ["verify"], ["checkpoint", "inspect"], ["checkpoint", "verify"], ["doctor"]]


class Help(cli.CliTest):
    def test_every_verb_has_help(self):
        for verb in VERBS:
            with self.subTest(verb=verb):
                text = self.succeed(*verb, "--help", ranks=0).stdout
                self.assertIn("--json", text)
                self.assertIn("-o,--output", text)
        listed = self.succeed("--help", ranks=0).stdout
        for verb in VERBS:
            self.assertIn(verb[0], listed)

    def test_help_and_version_are_printed_once_on_four_ranks(self):
        self.assertEqual(self.succeed("--version", ranks=4).stdout.count("ballast"), 1)
        self.assertEqual(self.succeed("train", "--help", ranks=4).stdout.count("RUN.toml TEXT"), 1)


class Values(cli.CliTest):
    def setUp(self):
        super().setUp()
        self.write_run()
        self.cluster = ("--cluster", "cluster4.toml")

    def test_values_go_from_verb_to_verb(self):
        topology = self.succeed("discover", *self.cluster, "--json", "-o", "topology.json", ranks=4).json()
        self.assertEqual(topology, json.loads((self.folder / "topology.json").read_text()))
        self.assertEqual([device["kind"] for device in topology["devices"]], ["large", "large", "small", "small"])

        collectives = self.succeed("profile", "collectives", *self.cluster, "--budget", "0.5s", "--json", "-o",
                                   "collectives.json", ranks=4).json()
        self.assertTrue(collectives["measured"])
        self.assertGreater(len(collectives["points"]), 0)

        model = self.succeed("profile", "model", "run.toml", "--json", "-o", "model.json", ranks=1).json()
        self.assertEqual([layer["name"] for layer in model["layers"]], ["embed", "block0", "block1", "head"])

        values = ("--model", "model.json", "--topology", "topology.json", "--collectives", "collectives.json")
        text = self.succeed("plan", *values, "--batch", "4", "-o", "plan.json", ranks=0).stdout
        self.assertEqual(text, self.succeed("explain", "plan.json", ranks=0).stdout)
        plan = json.loads((self.folder / "plan.json").read_text())
        self.assertEqual(plan["global_batch"], 4)

        self.succeed("plan", *values, "--batch", "4", "--set", "plan.stages=1", "-o", "other.json", ranks=4)
        self.assertEqual(self.succeed("diff", "plan.json", "plan.json", ranks=0).stdout, "no difference\n")
        self.succeed("diff", "plan.json", "other.json", "--json", ranks=0).json()

        simulation = self.succeed("simulate", "plan.json", "--json", "--trace", "trace.json", ranks=0).json()
        self.assertAlmostEqual(simulation["step_s"], plan["predictions"]["step_s"])
        self.assertEqual(len(simulation["ranks"]), 4)
        trace = json.loads((self.folder / "trace.json").read_text())
        boxes = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        self.assertTrue(any(event["name"] == "forward block0" for event in boxes))
        self.assertTrue(all(event["dur"] >= 0 and event["ts"] >= 0 for event in boxes))

    def test_doctor(self):
        findings = self.succeed("doctor", "--json", *self.cluster, ranks=0).json()["findings"]
        self.assertIn("cluster4.toml", next(item["value"] for item in findings if item["what"] == "cluster file"))
        self.write("bad.toml", "[")
        result = self.ballast("doctor", "--cluster", "bad.toml", ranks=0)
        self.assertEqual(result.code, 1, result.stderr)
        self.assertIn("FAIL", result.stdout)

    def test_show_config_names_origins_in_order_of_precedence(self):
        environment = {"BALLAST_TRAIN_STEPS": "7", "BALLAST_TRAIN_SEED": "8"}
        arguments = ("train", "run.toml", "--show-config", "--seed", "9", "--set", "plan.schedules=['gpipe']")
        config = self.succeed(*arguments, "--json", ranks=0, env=environment).json()
        self.assertEqual(config["train"]["steps"], {"value": 7, "origin": "BALLAST_TRAIN_STEPS"})
        self.assertEqual(config["train"]["seed"], {"value": 9, "origin": "--seed"})
        self.assertEqual(config["train"]["global_batch"], {"value": 4, "origin": "run.toml:12"})
        self.assertEqual(config["train"]["dtype"], {"value": "float32", "origin": "default"})
        self.assertEqual(config["plan"]["schedules"], {"value": ["gpipe"], "origin": "--set plan.schedules"})
        text = self.succeed(*arguments, ranks=4, env=environment).stdout
        self.assertEqual(text.count("steps = 7"), 1)
        self.write("shown.toml", text)  # what is shown is a RUN.toml again
        again = self.succeed("train", "shown.toml", "--show-config", "--json", ranks=0).json()
        self.assertEqual(again["train"]["steps"]["value"], 7)

    def test_verify_finds_the_plan_equal_to_one_process(self):
        result = self.succeed("verify", "run.toml", *self.cluster, "--steps", "3", "--json", ranks=4).json()
        self.assertTrue(result["equal"])
        self.assertEqual(len(result["plan_losses"]), 3)
        self.assertLess(result["largest_parameter_difference"], 1e-10)


if __name__ == "__main__":
    cli.main()
