/* SPDX-License-Identifier: MIT
 * test_kit_wrong.c - the kit itself: plugins that are wrong in one way each fail in the right group with the
 * right sentence, and the right ones that they are made of grade clean. */
#include "sim/coroutine.h"
#include "tests/kit/kit_test.h"
#include "tests/run_tests.h"

#if defined(SIM_ASAN) || defined(SIM_TSAN)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static const struct {
  const char *plugin, *kind, *group, *check, *sentence;
} wrongs[] = {
    {"wrong1", "NATIVE and refuses", "truth", "FAIL        truth.supports.matmul@wrong/naive",
     "answers native, and pack refuses"},
    {"wrong2", "refuses and then runs", "truth", "FAIL        truth.supports.matmul@wrong/naive",
     "answers NO (N must be even), and it runs"},
    {"wrong3", "prints", "hygiene", "FAIL        hygiene.output",
     "writes to standard output or error: 'RUDE WORDS"},
    {"wrong4", "calls setenv", "hygiene", "FAIL        hygiene.environment",
     "changes the environment: WRONG_PLUGIN=was here"},
    {"wrong5", "leaks a descriptor", "hygiene", "FAIL        hygiene.files", "open (/dev/null)"},
    {"wrong6", "off-by-one sum", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive",
     "the fp64 oracle says"},
    {"wrong7", "writes outside of its output", "numerics",
     "FAIL        numerics.values.float.matmul@wrong/naive", "writes outside of its output"},
    {"wrong49", "reads 4 bytes beyond X", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive",
     "reads outside of argument 0, at byte"},
    {"wrong50", "reads 4 bytes before X", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive",
     "reads outside of argument 0, at byte -4"},
    {"wrong51", "reads 4 bytes beyond the bias", "numerics",
     "FAIL        numerics.values.float.matmul@wrong/naive", "reads outside of argument 1, at byte"},
    {"wrong52", "reads 4 bytes beyond the residual", "numerics",
     "FAIL        numerics.values.float.matmul@wrong/naive", "reads outside of argument 2, at byte"},
    {"wrong8", "changes its input", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive",
     "the input is changed"},
    {"wrong9", "leaves memory when activate fails", "lifecycle", "FAIL        lifecycle.failures",
     "activate whose host call 2 (register_thing) fails leaves 1 blocks of host memory"},
    {"wrong10", "refuses without a reason", "truth", "FAIL        truth.supports.matmul@wrong/naive",
     "NO without a reason"},
    {"wrong11", "answers two things to one query", "truth", "FAIL        truth.supports.matmul@wrong/naive",
     "answers two things to one query"},
    {"wrong12", "installs a signal handler", "hygiene", "FAIL        hygiene.signals",
     "installs a handler of signal 10"},
    {"wrong40", "installs one when it is opened", "hygiene", "FAIL        hygiene.signals",
     "installs a handler of signal 12"},
    {"wrong13", "changes the rounding mode", "hygiene", "FAIL        hygiene.process",
     "changes the rounding mode"},
    {"wrong14", "aborts", "lifecycle", "FAIL        lifecycle.repeat", "signal 6"},
    {"wrong15", "lists what it does not register", "abi", "FAIL        abi.things",
     "lists op:convert@wrong, it is not registered"},
    {"wrong16", "activates only once", "lifecycle", "FAIL        lifecycle.repeat",
     "activation 2 fails: BS-WRONG-ONCE"},
    {"wrong17", "swallows NaN", "numerics", "FAIL        numerics.special.matmul@wrong/naive",
     "the fp64 oracle says nan"},
    {"wrong18", "flushes subnormals", "numerics", "FAIL        numerics.subnormal.matmul@wrong/naive",
     "is 0, the fp64 oracle says"},
    {"wrong19", "leaks device memory", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive",
     "blocks of device memory"},
    {"wrong20", "exports a second symbol", "abi", "FAIL        abi.symbols",
     "exports 2 symbols, one is allowed"},
    {"wrong21", "wrong struct size", "abi", "FAIL        abi.host", "BS-PLG-SIZE"},
    {"wrong22", "forgets the bias", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive",
     "bias=f32"},
    {"wrong23", "exits", "lifecycle", "FAIL        lifecycle.repeat",
     "the plugin ends the process: it may not call exit"},
    {"wrong24", "dropped tile", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive",
     "output [0,8] is"},
    {"wrong25", "static scratch in an op", "threads", "FAIL        threads.plans.matmul@wrong/naive",
     "the stopped one gets other values than alone"},
    {"wrong26", "thread-local storage", "hygiene", "FAIL        hygiene.tls",
     "has 8 bytes of thread-local storage"},
    {"wrong27", "second OpenMP runtime", "hygiene", "FAIL        hygiene.threads",
     "brings a second OpenMP runtime: libgomp libomp.so"},
    {"wrong28", "leaves memory when a device does not open", "lifecycle",
     "FAIL        lifecycle.device.wrong",
     "a device whose host call 1 (alloc) fails leaves 1 blocks of host memory"},
    {"wrong29", "ignores a team that fails", "lifecycle", "FAIL        lifecycle.memory.matmul@wrong/naive",
     "(parallel_for 1 fails): output [0,0] is"},
    {"wrong30", "runs the rows of prepare", "numerics", "FAIL        numerics.rows.matmul@wrong/naive",
     "writes outside of its output"},
    {"wrong31", "a packed weight for one number of rows", "numerics",
     "FAIL        numerics.rows.matmul@wrong/naive", "prepared for 7 rows, packed for 5"},
    {"wrong32", "wants more alignment than an element's", "truth",
     "FAIL        truth.supports.matmul@wrong/naive", "x is not at a cache line"},
    {"wrong33", "looser than what is asked for", "truth", "FAIL        truth.supports.matmul@wrong/naive",
     "sums are asked for in f64, and supports answers native with tolerance class 2"},
    {"wrong34", "UNKNOWN and wrong", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive",
     "the fp64 oracle says"},
    {"wrong35", "other bits over a part of the columns", "numerics",
     "FAIL        numerics.values.float.matmul@wrong/naive", "a second run gives other bits"},
    {"wrong38", "leaves an exit handler", "hygiene", "FAIL        hygiene.exit",
     "leaves a handler of exit behind"},
    {"wrong39", "a clock that goes backwards", "numerics", "FAIL        numerics.device.wrong",
     "event_elapsed tells -1 s"},
    {"wrong42", "a stream that does not wait", "numerics", "FAIL        numerics.device.wrong",
     "behind stream_wait does not see the work before its event"},
    {"wrong37", "clears the environment", "hygiene", "FAIL        hygiene.environment",
     "out of the environment"},
    {"wrong36", "flushes subnormals of f64", "numerics", "FAIL        numerics.subnormal.matmul@wrong/naive",
     "x=f64"},
    {"wrongo1", "clears its output before it reads", "numerics",
     "FAIL        numerics.in_place.activate@ref/wrong_activate", ", in place: output [0,0] is 0"},
    {"wrongk1", "swaps the places of one group", "numerics",
     "FAIL        numerics.values.float.matmul24@wrong/naive", "the fp64 oracle says"},
    {"wrongk2", "takes the other half", "numerics", "FAIL        numerics.values.float.matmul24@wrong/naive",
     "the fp64 oracle says"},
    {"wrongk3", "places from values", "numerics", "FAIL        numerics.packed.matmul24@wrong/naive",
     "reads back as"},
    {"wrongk4", "counts what is not kept", "numerics", "FAIL        numerics.special.matmul24@wrong/naive",
     "the fp64 oracle says"},
    {"wrongq1", "rounds halves away from zero", "numerics",
     "FAIL        numerics.values.float.quantize_groups@ref/naive", "q ["},
    {"wrongq2", "a NaN gets a finite scale", "numerics",
     "FAIL        numerics.special.quantize_groups@ref/naive", "the definition gives nan"},
    {"wrongq3", "adds terms from the last", "numerics",
     "FAIL        numerics.values.float.dequantize_sum@ref/naive", "the definition gives"},
    {"wrongq4", "one scale for all columns", "numerics",
     "FAIL        numerics.values.float.dequantize_product@ref/naive", "the definition gives"},
    {"wrongq5", "clears its output before it reads base", "numerics",
     "FAIL        numerics.in_place.dequantize_product@ref/naive", "the definition gives"},
    {"wrongq6", "rows that share scales have their own", "numerics",
     "FAIL        numerics.values.float.quantize_groups@ref/naive", "the scale ["},
    {"wrongq7", "rounds fp8 toward zero", "numerics",
     "FAIL        numerics.values.float.quantize_groups@ref/naive", "q ["},
    {"wrongq8", "one scale for all blocks", "numerics",
     "FAIL        numerics.values.float.scaled_matmul@ref/naive", "the fp64 oracle says"},
    {"wrongq9", "half the gradient of a square", "numerics",
     "FAIL        numerics.values.float.loss_gradient@ref/naive", "the fp64 oracle says"},
    {"wrongg1", "takes less for less or equal", "numerics", "FAIL        numerics.values.float.map@ref/naive",
     "the fp64 oracle says"},
    {"wrongg2", "clears its output before its program reads it", "numerics",
     "FAIL        numerics.in_place.map@ref/naive", ", arg "},
    {"wrongg3", "forgets eps", "numerics", "FAIL        numerics.values.float.normalize@ref/naive",
     "the fp64 oracle says"},
    {"wrongg4", "normalizes the rows of prepare", "numerics", "FAIL        numerics.rows.normalize@ref/naive",
     "smaller than prepared"},
    {"wrongg5", "reads keys behind their length", "numerics",
     "FAIL        numerics.values.float.attention@ref/naive", "is nan, the fp64 oracle says"},
    {"wrongg6", "sees keys outside of the window", "numerics",
     "FAIL        numerics.values.float.attention@ref/naive", "the fp64 oracle says"},
    {"wrongg7", "counts positions from the upper left", "numerics",
     "FAIL        numerics.values.float.attention@ref/naive", "attrs=2,"},
    {"wrongg8", "leaves scores uncapped", "numerics", "FAIL        numerics.values.float.attention@ref/naive",
     "the fp64 oracle says"},
    {"wrongg9", "gives all heads the first K and V", "numerics",
     "FAIL        numerics.values.float.attention@ref/naive", "the fp64 oracle says"},
    {"wrongg10", "forgets alpha", "numerics", "FAIL        numerics.values.float.contract@ref/naive",
     "the fp64 oracle says"},
    {"wrongg11", "one bias for all rows", "numerics", "FAIL        numerics.values.float.contract@ref/naive",
     "the fp64 oracle says"},
    {"wrongg12", "the last of equal places", "numerics", "FAIL        numerics.values.float.reduce@ref/naive",
     "attrs=6,"},
    {"wrongg13", "hides an index outside", "numerics", "FAIL        numerics.outside.take@ref/naive",
     "an index is outside of its dimension, and"},
    {"wrongg14", "sets where it should combine", "numerics",
     "FAIL        numerics.values.float.put@ref/naive", "the fp64 oracle says"},
    {"wrongg15", "the smallest for the largest", "numerics",
     "FAIL        numerics.values.float.topk@ref/naive", "is the one"},
    {"wrongg16", "gradients of uncapped scores", "numerics",
     "FAIL        numerics.values.float.attention_dx@ref/naive", "the fp64 oracle says"},
    {"wrongm1", "claims fewer bytes", "method", "FAIL        method.exact.2.wrong_row",
     "payload bytes, it proposed"},
    {"wrongm2", "off-by-one shard", "method", "FAIL        method.exact.2.wrong_row", "y["},
    {"wrongm3", "proposes and does not build", "method", "FAIL        method.exact.2.wrong_row", "not today"},
    {"wrongm4", "no bias at all", "method", "FAIL        method.exact.2.wrong_row", "y["},
    {"wrongm5", "swapped mask", "method", "FAIL        method.exact.2.wrong_row", "y["},
    {"wrongm6", "bias on each rank", "method", "FAIL        method.exact.2.wrong_row", "y["},
    {"wrongm7", "deep stack", "method", "FAIL        method.driven.2.wrong_row", "wrong_row: forward uses 4"},
    {"wrongm8", "static scratch in a layer", "threads", "FAIL        threads.worlds.wrong_row",
     "the stopped one gets other values than alone"},
    {"wrongm9", "mutable global", "hygiene", "FAIL        hygiene.globals.wrong_row",
     "changes its global variable forwards_made"},
    {"wrongm10", "leaves memory when build fails", "lifecycle", "FAIL        lifecycle.layer.wrong_row",
     "a layer whose host call 2 (alloc) fails leaves 1 blocks of host memory"},
    {"wrongm11", "finds its layer by the thread", "method", "FAIL        method.driven.2.wrong_row",
     "in a world of 2 coroutines wrong_row fails"},
    {"wrongm31", "gradient of the input once a rank", "method", "FAIL        method.gradient.2.wrong_row",
     "dx["},
    {"wrongm32", "gradient of the bias once a rank", "method", "FAIL        method.gradient.2.wrong_row",
     "db["},
    {"wrongm33", "claims half of its backward FLOPs", "method", "FAIL        method.gradient.1.wrong_row",
     "FLOPs of a backward"},
    {"wrongm34", "steps up the slope", "method", "FAIL        method.gradient.1.wrong_row", "step 1: W["},
    {"wrongm35", "forgets its velocity", "method", "FAIL        method.gradient.1.wrong_row", "step 3: W["},
    {"wrongm36", "takes every step for the first", "method", "FAIL        method.gradient.1.wrong_row",
     "step 4: W["},
    {"wrongm37", "a bias that decays", "method", "FAIL        method.gradient.1.wrong_row", "step 2: bias["},
    {"wrongm38", "works in two places by turns", "method", "FAIL        method.repeats.1.wrong_row",
     "forward 3 gives ops and collectives"},
    {"wrongm12", "claims fewer weight bytes", "method", "FAIL        method.driven.2.wrong_row",
     "bytes of weights, its proposal's weight_bytes are"},
    {"wrongm13", "claims less workspace", "method", "FAIL        method.driven.2.wrong_row",
     "of scratch and activations, its proposal's workspace_bytes are 1"},
    {"wrongm14", "names another collective", "method", "FAIL        method.exact.2.wrong_row",
     "collective 0 of a forward is of kind 0, it proposed kind 1"},
    {"wrong43", "wrong from 1000 features on", "numerics", "FAIL        numerics.rows.matmul@wrong/naive",
     "the fp64 oracle says"},
    {"wrong44", "keeps what it gave for the same tensors", "numerics",
     "FAIL        numerics.rows.matmul@wrong/naive", "with other inputs in the same tensors"},
    {"wrong45", "reads beside its input", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive",
     "reads outside of argument 0"},
    {"wrong46", "silu of f32 said to be exact", "numerics", "FAIL        numerics.rows.matmul@wrong/naive",
     "act=3"},
    {"wrong47", "a knob that does not reach the plan", "numerics",
     "FAIL        numerics.knobs.matmul@wrong/naive", "asked rows=2, the plan reports rows=4"},
    {"wrong48", "a value of a knob that is wrong", "numerics",
     "FAIL        numerics.knobs.matmul@wrong/naive", ", with rows=8"},
    {"wrongm15", "keeps the tensor of its first input", "method", "FAIL        method.repeats.1.wrong_row",
     "of the same x in another tensor"},
    {"wrongm16", "turns the sign of infinities", "method", "FAIL        method.real.1.wrong_row", "gate T3"},
    {"wrongm17", "a third forward that differs", "method", "FAIL        method.repeats.1.wrong_row",
     "of the same x in another tensor"},
    {"wrongc7", "makes NaN zero", "communicator", "FAIL        communicator.values.all_reduce.wrong_comm",
     "with NaN and Inf"},
    {"wrongc8", "leaves out the last of 63", "communicator",
     "FAIL        communicator.values.all_reduce.wrong_comm", "1 rows of 63"},
    {"wrongc9", "wrong from 100,000 elements on", "communicator",
     "FAIL        communicator.values.all_reduce.wrong_comm", "1 rows of 100033"},
    {"wrongw1", "values that depend on the panel", "workload", "FAIL        workload.stream.wrong_work",
     "differs"},
    {"wrongw2", "wrong shape declared", "workload", "FAIL        workload.parts.wrong_work", "info declares"},
    {"wrongw3", "another stream at each opening", "workload", "FAIL        workload.stream.wrong_work",
     "other values when it is opened again"},
    {"wrongw4", "leaves memory when open fails", "lifecycle", "FAIL        lifecycle.open.wrong_work",
     "a workload whose host call 2 (alloc) fails leaves 1 blocks of host memory"},
    {"wrongw5", "parts of one stream", "workload", "FAIL        workload.parts.wrong_work",
     "X and W begin with the same 960 values"},
    {"wrongw6", "tells of other values than it gives", "workload", "FAIL        workload.stream.wrong_work",
     "tells how it is made"},
    {"wrongc1", "worlds that share memory", "threads", "FAIL        threads.worlds.wrong_comm",
     "two worlds at once"},
    {"wrongc2", "leaves memory when a world does not open", "lifecycle",
     "FAIL        lifecycle.world.wrong_comm",
     "a world whose host call 2 (alloc) fails leaves 1 blocks of host memory"},
    {"wrongc3", "writes between rows", "communicator",
     "FAIL        communicator.values.all_reduce.wrong_comm", "writes between the rows of its output"},
    {"wrongc4", "adds instead of the largest", "communicator",
     "FAIL        communicator.values.all_reduce.wrong_comm", "all_reduce max f32"},
    {"wrongc5", "changes a collective's input", "communicator",
     "FAIL        communicator.values.all_reduce.wrong_comm", "changes its input"},
    {"wrongc6", "answers late", "communicator", "FAIL        communicator.faults.late.wrong_comm",
     "its deadline is 200 ms, and a second more is the limit"},
    {"wrongx1", "takes the newest message first", "communicator",
     "FAIL        communicator.exchange.wrong_exchange", "exchange of 6 messages"},
    {"wrongx2", "loses the last of 17 elements", "communicator",
     "FAIL        communicator.exchange.wrong_exchange", "it was sent"},
    {"wrongx3", "compares no sizes of messages", "communicator",
     "FAIL        communicator.exchange.mismatch.wrong_exchange", "it must be MISMATCH"},
    {"wrongx4", "drops messages of no elements", "communicator",
     "FAIL        communicator.exchange.wrong_exchange", "another message"},
    {"wronga1", "each rank begins its sums with itself", "communicator",
     "FAIL        communicator.values.all_reduce.wrong_attached", "3 processes: all_reduce f32"},
    {"wronga2", "waits for a process that has died", "communicator",
     "FAIL        communicator.faults.killed.wrong_attached", "it must be RANK_FAILED"},
    {"wronga3", "compares no call sites", "communicator",
     "FAIL        communicator.faults.mismatch.wrong_attached", "it must be MISMATCH"},
    {"wronga4", "tells another rank than the launcher", "communicator",
     "FAIL        communicator.values.barrier.wrong_attached", "this process was started as rank"},
    {"wronga5", "compares no configurations", "communicator",
     "FAIL        communicator.faults.config.wrong_attached", "it must be MISMATCH"},
    {"wronga6", "negative zeros on some ranks", "communicator",
     "FAIL        communicator.values.all_reduce.wrong_attached", "ranks 0 and 1 of 2 get other bits"},
    {"wronga7", "loses the code of an abort", "communicator",
     "FAIL        communicator.faults.abort.wrong_attached", "finds 0 in native_code"},
    {"wronga8", "a rank that dies at its call", "communicator",
     "FAIL        communicator.values.all_reduce.wrong_attached",
     "rank 1 dies of signal 6 while it is at its calls"},
#if defined(BS_TEST_KIT_CXX)
    {"wrongt1", "throws", "workload", "FAIL        workload.stream.wrong_throw", "no exception may leave it"},
#endif
    {"liar", "sums nothing", "communicator", "FAIL        communicator.values.all_reduce.liar",
     "the serial oracle says"},
    {"liar", "never misses a rank", "communicator", "FAIL        communicator.faults.late.liar",
     "it must be DEADLINE"},
};

START_TEST(wrong_plugins_fail_with_the_right_sentence) {
  static kit_ran r;
  if (SANITIZED && strcmp(wrongs[_i].kind, "deep stack") == 0) return; /* not measured there */
  const char *check = strrchr(wrongs[_i].check, ' ') + 1;
  const size_t group = strlen(wrongs[_i].group);
#if defined(SIM_TSAN) /* the build for what threads do to one another */
  if (strcmp(wrongs[_i].group, "threads") != 0 && strcmp(wrongs[_i].group, "communicator") != 0) return;
#endif
  ck_assert(strncmp(check, wrongs[_i].group, group) == 0 && check[group] == '.');
  /* The kit finds shared memory by itself, without ThreadSanitizer's reports. */
  kit_shell(&r, "TSAN_OPTIONS=report_bugs=0 '%s' '%s/bs_%s.so' --group '%s' 2>&1", kit_bin("bs-conformance"),
            BS_TEST_KIT_DIR, wrongs[_i].plugin, check);
  ck_assert_msg(r.code == 5, "%s: exit %d: %s", wrongs[_i].plugin, r.code, r.text);
  ck_assert_msg(kit_line_has(r.text, wrongs[_i].check, wrongs[_i].sentence), "%s: no '%s' with '%s' in %s",
                wrongs[_i].plugin, wrongs[_i].check, wrongs[_i].sentence, r.text);
  ck_assert_ptr_nonnull(strstr(r.text, "NOT blockshock-conformant"));
  ck_assert_ptr_nonnull(strstr(r.text, "error[BS-KIT-FAILED]"));
}
END_TEST

/* Each kind once, at least 25 of them, and every one is on the page that says what the kit finds. */
START_TEST(kinds_are_many_and_on_the_page) {
  static kit_ran page;
  enum { N = sizeof wrongs / sizeof wrongs[0] };
  kit_shell(&page, "tr -s ' \\n' ' ' <'%s/docs/conformance.md'", getenv("BS_TEST_SOURCE_DIR"));
  for (size_t i = 0; i < N; i++) {
    for (size_t k = 0; k < i; k++) ck_assert_str_ne(wrongs[i].kind, wrongs[k].kind);
    ck_assert_msg(strstr(page.text, wrongs[i].kind) != NULL, "docs/conformance.md has no '%s'",
                  wrongs[i].kind);
  }
  ck_assert_uint_ge(N, 25);
}
END_TEST

START_TEST(the_right_ones_grade_clean) {
  static const char *const rights[] = {"wrong0",  "wrongw0", "wrongk0", "wronga0",
                                       "wrongq0", "wrong41", "wrongg0", "wrongx0"};
  static kit_ran r;
  const int part = strcmp(rights[_i], "wrongx0") == 0; /* it has nothing else */
  kit_shell(&r, "'%s' '%s/bs_%s.so' %s 2>&1", kit_bin("bs-conformance"), BS_TEST_KIT_DIR, rights[_i],
            part ? "--group communicator.exchange" : "");
  ck_assert_msg(r.code == 0, "%s: exit %d: %s", rights[_i], r.code, r.text);
  ck_assert_ptr_nonnull(
      strstr(r.text, part ? "pass        communicator.exchange" : "\nblockshock-conformant "));
}
END_TEST

int main(void) {
  const test_case tests[] = {{wrong_plugins_fail_with_the_right_sentence, TEST_COUNT(wrongs)},
                             {kinds_are_many_and_on_the_page},
                             {the_right_ones_grade_clean, 8},
                             {0}};
  return run_tests("kit_wrong", tests, (test_setup){.timeout = 120, .at_once = 3});
}
