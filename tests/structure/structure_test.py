# SPDX-License-Identifier: Apache-2.0
"""Checks rules of the source tree that no compiler checks; prints each violation as file:line: text.

usage: structure_test.py PROJECT_FOLDER

- A module includes only itself and modules above it; plan, checkpoint and report see less (ALLOWED, VALUES below).
- The modules of ballast_core never include LibTorch; public headers include only ATen/core/Tensor.h (1.3 s) and c10/ of
  it, but for TORCH_HEADERS.
- spdlog stays in src/base/log.cpp: LibTorch's include folder holds an fmt that it does not compile with.
- No public header is over 250 lines; every source of a module is listed in its CMakeLists.txt; every file names its licence.
"""
import pathlib
import re
import sys

MODULES = ["base", "comm", "cluster", "device", "model", "plan", "checkpoint", "train", "report"]
CORE = {"base", "comm", "cluster", "plan", "checkpoint", "report"}
CORE_FILES = {"model_profile"}  # of other modules, without suffix
ABOVE = {module: set(MODULES[: place + 1]) for place, module in enumerate(MODULES)}
# Fewer than "all above": ballast_core does not link device, model, train, so it sees their values at most.
ALLOWED = {
    **ABOVE,
    "plan": {"base", "plan"},
    "checkpoint": {"base", "comm", "cluster", "checkpoint"},
    "report": {"base", "report"},
}
# Headers of other modules that hold plain values, and who may include them besides.
VALUES = {
    "plan": {"comm/data_type.hpp", "cluster/topology.hpp", "cluster/collective_profile.hpp", "model/model_profile.hpp"},
    "report": {"comm/data_type.hpp", "cluster/topology.hpp", "cluster/collective_profile.hpp",
               "model/model_profile.hpp", "plan/plan.hpp", "plan/schedule.hpp", "plan/simulate.hpp"},
}
# Public headers for users who define torch::nn modules and have torch/torch.h (16 s) anyhow.
TORCH_HEADERS = {"include/ballast/model/torch_module.hpp"}
MAX_HEADER_LINES = 250
LICENSED = {".cpp", ".hpp", ".cu", ".py", ".sh", ".cmake"}
TORCH = re.compile(r"(torch|ATen|c10|caffe2)/")
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match.group(1)


def check_includes(root):
    for folder in ("include/ballast", "src"):
        for path in sorted((root / folder).rglob("*.?pp")):
            module = path.relative_to(root / folder).parts[0]
            public = folder == "include/ballast"
            for number, name in includes(path):
                where = f"{path.relative_to(root)}:{number}"
                if name.startswith("ballast/"):
                    header = name.removeprefix("ballast/")
                    other = header.split("/")[0]
                    if module in ALLOWED and other in MODULES and other not in ALLOWED[module]:
                        if header not in VALUES.get(module, ()):
                            yield f"{where}: {module} may not include {name}"
                elif TORCH.match(name):
                    if module in CORE or path.stem in CORE_FILES:
                        yield f"{where}: {path.name} belongs to ballast_core, which does not know LibTorch ({name})"
                    elif public and name != "ATen/core/Tensor.h" and not name.startswith("c10/"):
                        if str(path.relative_to(root)) not in TORCH_HEADERS:
                            yield f"{where}: a public header includes only ATen/core/Tensor.h or c10/, not {name}"
                elif name.startswith("spdlog/") and path != root / "src/base/log.cpp":
                    yield f"{where}: spdlog is used in src/base/log.cpp only"


def check_files(root):
    for path in sorted((root / "include").rglob("*.hpp")):
        lines = len(path.read_text().splitlines())
        if lines > MAX_HEADER_LINES:
            yield f"{path.relative_to(root)}:{lines}: a public header has at most {MAX_HEADER_LINES} lines"
    for path in sorted((root / "src").rglob("*.cpp")):
        listed = path.parent / "CMakeLists.txt"
        if listed.exists() and not re.search(rf"(?<![\w/]){re.escape(path.name)}\b", listed.read_text()):
            yield f"{path.relative_to(root)}:1: not listed in {listed.relative_to(root)}"
    for folder in ("include", "src", "apps", "tests", "bench", "cmake", "scripts", "jobscripts"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in LICENSED or path.name == "CMakeLists.txt":
                if "SPDX-License-Identifier: Apache-2.0" not in "".join(path.read_text().splitlines()[:3]):
                    yield f"{path.relative_to(root)}:1: no SPDX-License-Identifier in the first three lines"


def main():
    root = pathlib.Path(sys.argv[1])
    checked = sum(1 for _ in (root / "include").rglob("*.hpp"))
    violations = [*check_includes(root), *check_files(root)]
    print("\n".join(violations))
    print(f"{checked} public headers checked, {len(violations)} violations")
    return 1 if violations or not checked else 0


sys.exit(main())
