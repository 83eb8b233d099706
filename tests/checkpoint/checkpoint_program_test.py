# SPDX-License-Identifier: Apache-2.0
"""Looks at checkpoints with other code than wrote them (h5py), and at what is left when the writer is killed.

usage: checkpoint_program_test.py PROGRAM MPIEXEC NUMPROC_FLAG
"""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import h5py
    import numpy
except ImportError as error:
    h5py = None
    MISSING = str(error)

PROGRAM, MPIEXEC, NUMPROC_FLAG = sys.argv[1:4]
TYPES = {"float64": "f8", "float32": "f4", "int32": "i4", "int64": "i8", "uint8": "u1", "bfloat16": "f4"}
SHAPES = {"block0/attention/bias": [13], "block0/weight": [5, 7], "counts": [4], "embed.weight": [3, 2, 2],
          "empty": [0, 3], "größe ⚓ [x]": [3], "mask": [6], "step": []}


def command(*arguments, ranks=None):
    start = [PROGRAM, *map(str, arguments)]
    return [MPIEXEC, NUMPROC_FLAG, str(ranks), *start] if ranks else start


def run(*arguments, ranks=None, code=0):
    done = subprocess.run(command(*arguments, ranks=ranks), capture_output=True, text=True, timeout=60)
    assert done.returncode == code, f"{arguments}: code {done.returncode}\n{done.stdout}{done.stderr}"
    assert "HDF5-DIAG" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def values(name, begin, end):
    """example_tensors.hpp: (7 element + bytes of the name) mod 120."""
    return [(7 * element + len(name.encode())) % 120 for element in range(begin, end)]


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


@unittest.skipUnless(h5py, "h5py or numpy cannot be imported")
class OtherCode(InFolder):
    def test_h5py_reads_every_element(self):
        run("save", self.folder, 7, ranks=3)
        step = self.folder / "step-00000007"
        manifest = json.loads((step / "manifest.json").read_text())
        self.assertEqual(manifest["schema"], "ballast.checkpoint/1")
        self.assertEqual(manifest["step"], 7)
        self.assertEqual(manifest["metadata"], {"made by": "checkpoint_program"})
        types = {tensor["name"]: tensor["type"] for tensor in manifest["tensors"]}
        self.assertEqual({tensor["name"]: tensor["shape"] for tensor in manifest["tensors"]}, SHAPES)

        covered = {name: set() for name in SHAPES}
        for entry in manifest["files"]:
            path = step / entry["name"]
            self.assertEqual(path.stat().st_size, entry["bytes"])
            with h5py.File(path, "r") as file:
                for shard in entry["shards"]:
                    name, begin, end = shard["tensor"], shard["begin"], shard["end"]
                    self.assertEqual(shard["dataset"], f"/{name}/{begin}-{end}")
                    dataset = file[shard["dataset"]]
                    self.assertEqual(dataset.shape, (end - begin,))
                    self.assertEqual(dataset.dtype, numpy.dtype("<" + TYPES[types[name]]), name)
                    self.assertIsNone(dataset.chunks)
                    self.assertEqual([int(value) for value in dataset[:]], values(name, begin, end), name)
                    self.assertEqual(dataset.attrs["begin"], begin)
                    self.assertEqual(dataset.attrs["end"], end)
                    self.assertEqual(list(dataset.attrs["shape"]), SHAPES[name])
                    self.assertEqual(dataset.attrs["type"].decode(), types[name])
                    self.assertFalse(covered[name] & set(range(begin, end)), "written twice")
                    covered[name] |= set(range(begin, end))
        for name, shape in SHAPES.items():
            self.assertEqual(covered[name], set(range(int(numpy.prod(shape, dtype=int)))), name)

    def test_what_h5py_wrote_is_loaded(self):
        step = self.folder / "step-00000003"
        step.mkdir()
        types = {"block0/attention/bias": "float64", "block0/weight": "float32", "counts": "int32", "empty": "float32",
                 "größe ⚓ [x]": "float32", "mask": "uint8", "step": "int64", "embed.weight": "bfloat16"}
        manifest = {"schema": "ballast.checkpoint/1", "step": 3, "files": [], "metadata": {},
                    "tensors": [{"name": name, "shape": SHAPES[name], "type": types[name]} for name in sorted(
                        SHAPES, key=str.encode)]}
        for number in range(2):  # halves of every tensor; the second file holds the scalar, too
            shards = []
            with h5py.File(step / f"half{number}.h5", "w") as file:
                for name, shape in SHAPES.items():
                    elements = int(numpy.prod(shape, dtype=int))
                    begin, end = (0, elements // 2) if number == 0 else (elements // 2, elements)
                    if begin == end:
                        continue
                    path = f"/{name}/{begin}-{end}"
                    data = numpy.array(values(name, begin, end))
                    if types[name] == "bfloat16":
                        self.write_bfloat16(file, path, data)
                    else:
                        file.create_dataset(path, data=data.astype("<" + TYPES[types[name]]))
                    shards.append({"tensor": name, "begin": begin, "end": end, "dataset": path})
            size, digest = run("digest", step / f"half{number}.h5").split()
            manifest["files"].append({"name": f"half{number}.h5", "bytes": int(size), "hash": digest, "shards": shards})
        (step / "manifest.json").write_text(json.dumps(manifest))

        for ranks in (None, 2, 3):
            self.assertIn("step 3", run("load", self.folder, ranks=ranks))

    @staticmethod
    def write_bfloat16(file, path, data):
        kind = h5py.h5t.IEEE_F32LE.copy()
        kind.set_fields(15, 7, 8, 0, 7)
        kind.set_size(2)
        kind.set_ebias(127)
        group = file.require_group(path.rpartition("/")[0])
        space = h5py.h5s.create_simple(data.shape)
        dataset = h5py.h5d.create(group.id, path.rpartition("/")[2].encode(), kind, space)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, data.astype("<f4"))

    def test_the_hash_is_the_public_xxh3(self):
        path = self.folder / "file"
        for content, expected in ((b"", "99aa06d3014798d86001c324468d497f"),  # xxHash's own test vector for no input
                                  (b"x" * 300_000, None)):
            path.write_bytes(content)
            size, digest = run("digest", path).split()
            self.assertEqual(int(size), len(content))
            if expected:
                self.assertEqual(digest, expected)


class Killed(InFolder):
    def test_a_committed_step_survives_whenever_a_writer_is_killed(self):
        seed = random.randrange(2**32)
        print(f"seed {seed}")
        moment = random.Random(seed)
        for ranks in [None] * 8 + [2] * 3:
            with self.subTest(ranks=ranks):
                folder = self.folder / str(moment.random())
                writer = subprocess.Popen(command("save-until-killed", folder, ranks=ranks), stdout=subprocess.PIPE,
                                          stderr=subprocess.DEVNULL, text=True)
                for _ in range(moment.randrange(1, 4)):  # at least this many steps are committed
                    last = int(writer.stdout.readline().split()[1])
                time.sleep(moment.random() * 0.02)
                victims = self.children(writer.pid) if ranks else [writer.pid]
                os.kill(moment.choice(victims), signal.SIGKILL)
                out, _ = writer.communicate(timeout=60)  # mpirun ends the other ranks
                for line in out.splitlines():
                    last = int(line.split()[1]) if line.startswith("step ") else last
                found = int(run("load", folder).split()[1])
                # The step being committed when the signal came may be there or not; one that was reported must be.
                self.assertIn(found, (last, last + 1, last + 2) if ranks else (last, last + 1))

    @staticmethod
    def children(pid):
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class FullDisk(InFolder):
    def test_no_space_left_is_an_error_and_the_step_before_still_loads(self):
        if os.geteuid() != 0:
            self.skipTest("only root may mount a small file system")
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", self.folder], capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("cannot mount a small file system: " + mounted.stderr.decode())
        self.addCleanup(subprocess.run, ["umount", "-l", self.folder], check=True)
        run("save", self.folder, 1, ranks=2)

        message = run("fill", self.folder, 2, 3_000_000, ranks=2, code=1)

        self.assertEqual(message.count("ballast: error:"), 1, message)
        self.assertIn("No space left on device", message)
        self.assertFalse((self.folder / "step-00000002").exists())
        self.assertIn("step 1", run("load", self.folder, ranks=2))
        run("save", self.folder, 2, ranks=2)
        self.assertIn("step 2", run("load", self.folder))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
