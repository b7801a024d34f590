"""Tests of tools/tidy.py: each rule fails on a small made-up tree, and this repository passes all of them."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tidy  # noqa: E402

OPENING = "// A thing.\n//\n// Uses: base. Threads: any.\n#pragma once\n"


def plate(name, uses="", door=""):
    return f"# {name}\nHolds: things.\nUses: {uses}\nThreads: any.\nDoor: {door}\n"


# A tree without a problem; each test breaks one thing.
CLEAN = {
    "Makefile": "test: build\nbuild:\n",
    "README.md": "# House\nRun `make test`; the base is in `src/base/thing.h`, see [the door](src/base/README.md).\n",
    "src/base/README.md": plate("base", door="thing.h"),
    "src/base/CMakeLists.txt": "starling_module(base SOURCES thing.cc TESTS thing_test.cc)\n",
    "src/base/thing.h": OPENING + "struct Thing {};\n",
    "src/base/inner.h": OPENING + '#include "base/thing.h"\n',
    "src/base/thing.cc": '#include "base/inner.h"\nint thing() {\n  return 1;\n}\n',
    "src/base/thing_test.cc": "#include <grpcpp/grpcpp.h>\n",
    "src/conf/README.md": plate("conf", uses="base", door="options.h"),
    "src/conf/options.h": OPENING + '#include "base/thing.h"\n',
    "src/net/README.md": plate("net", uses="base, wire, gRPC", door="server.h"),
    "src/net/server.h": OPENING,
    "src/wire/README.md": plate("wire", uses="base", door="frame.h"),
    "src/wire/frame.h": OPENING,
    "src/scheduler/README.md": plate("scheduler", uses="base conf wire net", door="client.h, server.h"),
    "src/scheduler/client.h": OPENING,
    "src/scheduler/server.h": OPENING,
    "src/ps/README.md": plate("ps", uses="base, scheduler/client.h", door="client.h"),
    "src/ps/client.h": OPENING + '#include "scheduler/client.h"\n',
    "src/bin/README.md": plate("bin", uses="scheduler"),
    "src/bin/main.h": OPENING + '#include "scheduler/server.h"\n',
    "src/base/thing_testing.h": OPENING,
    "tests/all_test.cc": '#include "base/thing.h"\n#include "base/thing_testing.h"\n#include "scheduler/server.h"\n',
    "tests/CMakeLists.txt": "add_executable(all_test all_test.cc)\n",
}


class TidyTest(unittest.TestCase):
    def problems(self, **changes):
        """The problems of CLEAN with `files` added or replaced and the paths of `without` taken away."""
        files = dict(CLEAN, **changes.get("files", {}))
        for path in changes.get("without", ()):
            del files[path]
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                target = pathlib.Path(folder, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
            return [str(problem) for problem in tidy.tidy(folder)[0]]

    def expect(self, wanted, **changes):
        self.assertEqual(self.problems(**changes), wanted)

    def test_a_clean_tree_has_no_problem(self):
        self.expect([])

    def test_this_repository_has_no_problem(self):
        root = pathlib.Path(__file__).resolve().parent.parent
        problems = tidy.tidy(root)[0]
        self.assertFalse(problems, "\n" + "\n".join(map(str, problems)))

    def test_a_room_needs_a_plate(self):
        self.expect(["src/conf/README.md:1: plate: room 'conf' has no door plate"], without=["src/conf/README.md"])

    def test_a_plate_has_four_lines(self):
        self.expect(["src/conf/README.md:1: plate: no 'Threads:' line"],
                    files={"src/conf/README.md": "# conf\nHolds: x\nUses: base\nDoor: options.h\n"})

    def test_a_plate_has_the_name_of_its_room(self):
        self.expect(["src/conf/README.md:1: plate: the first line has to be '# conf'"],
                    files={"src/conf/README.md": plate("config", uses="base", door="options.h")})

    def test_a_door_header_exists(self):
        self.expect(["src/conf/README.md:5: plate: door header 'options2.h' does not exist"],
                    files={"src/conf/README.md": plate("conf", uses="base", door="options.h, options2.h")})

    def test_a_plate_cannot_use_what_the_style_refuses(self):
        self.expect(["src/conf/README.md:1: plate: 'conf' may not use 'wire'"],
                    files={"src/conf/README.md": plate("conf", uses="base, wire", door="options.h")})

    def test_a_room_outside_the_table_is_refused(self):
        found = self.problems(files={"src/util/README.md": plate("util")})
        self.assertIn("src/util:1: plate: 'util' is a drawer, not a room: say what it refuses to hold", found)
        self.assertIn("src/util/README.md:1: plate: room 'util' is not in the table of STYLE (ALLOWED in tools/tidy.py)", found)

    def test_a_maker_uses_no_more_than_its_room(self):
        self.expect(["src/net/grpc/README.md:1: plate: uses 'conf', which the plate of 'net' does not"],
                    files={"src/net/grpc/README.md": plate("net/grpc", uses="net, base, conf")})

    def test_a_maker_includes_what_its_own_plate_names(self):
        maker = {"src/net/grpc/README.md": plate("net/grpc", uses="net, base"),
                 "src/net/grpc/server.h": OPENING + '#include "net/server.h"\n#include "wire/frame.h"\n'}
        self.expect(["src/net/grpc/server.h:6: include: room 'wire' is not in the Uses line of src/net/grpc/README.md"],
                    files=maker)
        self.expect([], files=dict(maker, **{"src/net/grpc/README.md": plate("net/grpc", uses="net, base, wire")}))

    def test_brackets_do_not_hide_an_include(self):
        self.expect(["src/conf/options.h:5: include: room 'conf' may not use room 'wire'",
                     "src/conf/options.h:5: include: write <wire/frame.h> in quotes: it is ours"],
                    files={"src/conf/options.h": OPENING + "#include <wire/frame.h>\n#include <net/if.h>\n"})

    def test_tests_and_benchmarks_include_doors_alone(self):
        code = '#include "base/inner.h"\n'
        self.expect([f"{path}:1: include: \"base/inner.h\" is not a door header of 'base' (src/base/README.md)"
                     for path in ("bench/all_bench.cc", "tests/all_test.cc")],
                    files={"tests/all_test.cc": code, "bench/all_bench.cc": code,
                           "bench/CMakeLists.txt": "add_executable(all_bench all_bench.cc)\n"})

    def test_an_include_of_a_forbidden_room_fails(self):
        self.expect(["src/conf/options.h:5: include: room 'conf' may not use room 'wire'"],
                    files={"src/conf/options.h": OPENING + '#include "wire/frame.h"\n'})

    def test_an_include_outside_the_plate_fails(self):
        self.expect(["src/ps/client.h:5: include: room 'net' is not in the Uses line of src/ps/README.md"],
                    files={"src/ps/client.h": OPENING + '#include "net/server.h"\n'})

    def test_only_door_headers_are_included_from_outside(self):
        self.expect(["src/conf/options.h:5: include: \"base/inner.h\" is not a door header of 'base' (src/base/README.md)"],
                    files={"src/conf/options.h": OPENING + '#include "base/inner.h"\n'})

    def test_of_a_role_others_see_only_its_client(self):
        self.expect(["src/ps/client.h:5: include: of the role 'scheduler' others see only client.h, not \"scheduler/server.h\""],
                    files={"src/ps/client.h": OPENING + '#include "scheduler/server.h"\n'})

    def test_an_include_names_a_file_that_exists(self):
        self.expect(['src/base/inner.h:5: include: "base/thin.h" does not exist under src/'],
                    files={"src/base/inner.h": OPENING + '#include "base/thin.h"\n'})

    def test_a_generated_header_exists_when_its_proto_does(self):
        code = OPENING + '#include "base/record.pb.h"\n'
        self.expect(['src/base/inner.h:5: include: "base/record.pb.h" does not exist under src/'],
                    files={"src/base/inner.h": code})
        self.expect([], files={"src/base/inner.h": code, "src/base/record.proto": ""})

    def test_an_include_is_written_from_src(self):
        self.expect(['src/base/inner.h:5: include: write "thing.h" with its path from src/'],
                    files={"src/base/inner.h": OPENING + '#include "thing.h"\n'})

    def test_headers_do_not_include_in_a_circle(self):
        self.expect(["src/base/inner.h:1: cycle: includes go in a circle: "
                     "src/base/inner.h -> src/base/thing.h -> src/base/inner.h"],
                    files={"src/base/thing.h": OPENING + '#include "base/inner.h"\n'})

    def test_rooms_do_not_include_in_a_circle(self):
        found = self.problems(files={"src/base/thing.cc": '#include "conf/options.h"\n'})
        self.assertIn("src:1: cycle: includes go in a circle: base -> conf -> base", found)

    def test_grpc_stays_in_its_maker(self):
        self.expect(["src/net/server.h:5: library: gRPC is included only in src/net/grpc"],
                    files={"src/net/server.h": OPENING + "#include <grpcpp/server.h>\n",
                           "src/net/grpc/server.h": OPENING + "#include <grpcpp/server.h>\n"})

    def test_stubs_of_grpc_stay_in_its_maker(self):
        self.expect(["src/net/server.h:5: library: gRPC is included only in src/net/grpc"],
                    files={"src/net/server.h": OPENING + '#include "starling/v1/ps.grpc.pb.h"\n'})

    def test_libtorch_stays_in_the_trainer(self):
        self.expect(["src/ps/client.h:5: library: libtorch is included only in src/trainer"],
                    files={"src/ps/client.h": OPENING + "#include <torch/script.h>\n"})

    def test_only_conf_reads_the_environment(self):
        code = 'const char* home() { return std::getenv("HOME"); }  // getenv\n'
        self.expect(["src/base/thing.cc:1: getenv: getenv: only conf reads the environment"],
                    files={"src/base/thing.cc": code, "src/base/thing_test.cc": code, "src/conf/options.h": OPENING + code})

    def test_a_word_in_a_comment_or_string_is_no_call(self):
        self.expect([], files={"src/base/thing.cc": '// getenv is conf\'s\nconst char* kWhy = "getenv";\n'})

    def test_a_header_says_what_it_uses_and_its_threads(self):
        self.expect(["src/base/thing.h:1: header: no #pragma once",
                     "src/base/thing.h:1: header: the comment that opens the header has no 'Threads:'"],
                    files={"src/base/thing.h": "// A thing. Uses: nothing.\n\n// Threads: too late.\n"})

    def test_a_source_file_is_listed(self):
        self.expect(["src/base/thing_test.cc:1: listed: is in no CMakeLists.txt, so it is neither built nor run"],
                    files={"src/base/CMakeLists.txt": "starling_module(base SOURCES thing.cc TESTS other_thing_test.cc)\n"})

    def test_a_file_has_at_most_800_lines(self):
        self.expect(["src/base/thing.cc:801: length: 801 lines, at most 800"],
                    files={"src/base/thing.cc": "\n" * 801})

    def test_a_function_has_at_most_70_lines(self):
        body = "  f();\n" * 71
        long = ("namespace a {\nclass B : public C<D> {\n public:\n  explicit B(int x) : x_{x}, y_(\"}\") {\n" + body + "  }\n};\n"
                "constexpr int kTable[] = {\n" + "  1,\n" * 90 + "};\n}  // namespace a\n")
        self.expect(["src/base/thing.cc:4: length: a function of 71 lines, at most 70"], files={"src/base/thing.cc": long})
        self.expect([], files={"src/base/thing.cc": long.replace("  f();\n", "", 1)})

    def test_a_class_is_no_function_however_long(self):
        members = "".join(f"  int f{i}() {{ return {i}; }}\n" for i in range(90))
        self.expect([], files={"src/base/thing.cc": "class ABSL_LOCKABLE A final : public B {\n" + members + "};\n"})

    def test_a_python_function_has_at_most_70_lines(self):
        self.expect(["tools/x.py:1: length: a function of 71 lines, at most 70"],
                    files={"tools/x.py": "def f():\n" + "    g()\n" * 71})

    def test_a_suppression_names_a_library_and_has_a_reason(self):
        self.expect([], files={"tools/tsan.supp": "# It is built without.\nrace:libgrpc.so\nrace:grpc::internal::CallOp\n"})
        self.expect(["tools/tsan.supp:2: supp: 'race:starling::Shard' is no frame of a library that is built without the sanitizer",
                     "tools/tsan.supp:4: supp: 'race:libgpr.so' has no reason above it"],
                    files={"tools/tsan.supp": "# Ours.\nrace:starling::Shard\n\nrace:libgpr.so\n"})

    def test_the_environment_is_not_read_around_getenv(self):
        self.expect(["src/base/thing.cc:1: getenv: = environ: only conf reads the environment"],
                    files={"src/base/thing.cc": "char** all = environ;\nspawn(environ);\n"})

    def test_notes_to_self_are_refused(self):
        note = "TO" "DO"
        self.expect([f"src/base/thing.cc:1: words: '{note}': do it or file it"],
                    files={"src/base/thing.cc": f"// {note} later\n"})

    def test_documents_promise_nothing(self):
        promise = "T" "BD"
        self.expect([f"docs/x.md:1: words: '{promise}': a document says what is"],
                    files={"docs/x.md": f"Speed: {promise}\n"})

    def test_paths_of_one_machine_are_refused(self):
        path = "/" "home/" "me/x"
        self.expect([f"docs/x.md:1: words: '{path[:7]}': a path of one machine"],
                    files={"docs/x.md": f"It is in {path}, not in https://a.b{path}\n"})

    def test_a_path_in_a_document_exists(self):
        self.expect(["ARCHITECTURE.md:1: path: `src/base/gone.h` does not exist",
                     "ARCHITECTURE.md:1: path: `thing.md` does not exist",
                     "ARCHITECTURE.md:1: path: the link to docs/gone leads nowhere"],
                    files={"ARCHITECTURE.md": "`src/base/gone.h` `base/thing.{h,cc}` `thing.md` `src/*/README.md` "
                                              "[a](docs/gone) [b](https://x.y/z) `a/b` `x_test.cc` `src/<room>/x.h` `build/x/y.h`\n"})

    def test_a_make_target_in_a_document_exists(self):
        self.expect(["README.md:1: path: there is no `make train`", "README.md:3: path: there is no `make fly`"],
                    files={"README.md": "`make train`\n```\nmake fly   # now\nmake test\n```\n"})


if __name__ == "__main__":
    unittest.main()
