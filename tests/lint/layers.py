#!/usr/bin/env python3
"""Which room may include which, and one door for each third-party library.

A room is a folder of sources. FLOORS lists the rooms of each part of the tree
from the top down: a file may include files of its own room and of rooms below
it, never above. No two modules (a .c and its .h are one) include each other in
a circle. No two .c files and no two struct tags of the tree have one name.

Prints what is wrong; exit status 1 if anything is.
"""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

COMMON = ["common/conf", "common/http", "common/io", "common", "common/json", "common/base"]
FLOORS = {
    "common": COMMON,
    "agent/link": ["agent/link"],
    "agent/src": ["agent/src/api", "agent/src/pull", "agent/src/peer", "agent/src/hold", "agent/src/link",
                  "agent/src/fabric", "agent/src/geometry", "agent/src/base", "agent/link"],
    "agent/engine": ["agent/engine", "agent/engine/serve", "agent/engine/run", "agent/engine/handoff",
                     "agent/engine/options", "agent/engine/kv"],
    "agent/example": ["agent/example"],
    "proxy": ["proxy", "proxy/admin", "proxy/front", "proxy/exchange", "proxy/roster", "proxy/agents", "proxy/fleet",
              "proxy/metrics", "proxy/base", "proxy/config", "agent/link"],
    "bench": ["bench/load", "bench/micro", "bench", "agent/engine/kv"],
}

# Who may include a third-party library: its door.
DOORS = {
    "libevent": (r"event2?[./]", r"common/io/(loop|stream)\.c"),
    "llhttp": (r"llhttp", r"common/http/http_parse\.c"),
    "c-ares": (r"ares\.h", r"common/io/resolver\.c"),
    "libyaml": (r"yaml\.h", r"common/conf/conf_yaml\.c"),
    "OpenSSL": (r"openssl/", r"common/proof\.c|proxy/config/auth\.c"),
    "jansson": (r"jansson", r"proxy/admin/admin_view\.c|agent/engine/serve/eng_request\.c|bench/micro/micro_json\.c"),
    "libfabric": (r"rdma/", r"agent/src/fabric/fabric_core\.h|bench/micro/raw_fabric\.c"),
    "dlopen": (r"dlfcn", r"agent/src/memory/.*\.c"),
    "the agent's API": (r"baton/", r"(agent|bench/micro)/.*"),
}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.M)
TAG = re.compile(r"^(?:typedef )?(?:struct|union|enum) (\w+) \{", re.M)


def part_of(path):
    return next((part for part in FLOORS if path.startswith(part + "/")), None)


def room_of(path):
    return str(pathlib.PurePath(path).parent)


def module_of(path):
    return path.rsplit(".", 1)[0]


def sources():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "common", "proxy",
                             "agent", "bench"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for path in listed.split():
        if path.endswith((".c", ".h", ".def")) and (ROOT / path).is_file():
            yield path, (ROOT / path).read_text()


def may_include(path, target):
    part = part_of(path)
    if part is None:
        return True
    floors = FLOORS[part] if part == "common" else FLOORS[part] + COMMON
    here, there = room_of(path), room_of(target)
    return there in floors and floors.index(there) >= floors.index(here)


def circles(graph):
    """The strongly connected components of more than one module (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            members = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(members) > 1:
                found.append(sorted(members))

    for node in list(graph):
        if node not in index:
            visit(node)
    return found


def main():
    sys.setrecursionlimit(10000)
    graph = collections.defaultdict(set)
    names = collections.defaultdict(list)
    tags = collections.defaultdict(list)
    wrong = []
    for path, text in sources():
        if path.endswith(".c"):
            names[pathlib.PurePath(path).name].append(path)
        for tag in TAG.findall(text):
            tags[tag].append(path)
        for quote, target in INCLUDE.findall(text):
            if quote == '"' and not target.startswith("baton/"):
                if not may_include(path, target):
                    wrong.append(f"{path} may not include {target}")
                elif module_of(path) != module_of(target):
                    graph[module_of(path)].add(module_of(target))
            for library, (header, doors) in DOORS.items():
                # The agent's own files write "baton/agent.h".
                if re.match(header, target) and not re.fullmatch(doors, path):
                    wrong.append(f"{path} includes {target}: {library} has other doors ({doors})")
    for members in circles(graph):
        wrong.append("a circle: " + ", ".join(members))
    for kind, places in (("file", names), ("tag", tags)):
        for name, paths in places.items():
            if len(set(paths)) > 1:
                wrong.append(f"{kind} {name} stands in {', '.join(sorted(set(paths)))}")
    for line in wrong:
        print(f"layers: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
