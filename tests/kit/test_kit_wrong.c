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
  const char *plugin, *kind, *check, *sentence;
} wrongs[] = {
    {"wrong_op", "NATIVE and refuses", "truth.supports.matmul@wrong/naive",
     "answers native, and pack refuses"},
    {"wrong_op", "refuses and then runs", "truth.supports.matmul@wrong/naive",
     "answers NO (N must be even), and it runs"},
    {"wrong_op", "prints", "hygiene.output", "writes to standard output or error: 'RUDE WORDS"},
    {"wrong_op", "calls setenv", "hygiene.environment", "changes the environment: WRONG_PLUGIN=was here"},
    {"wrong_op", "leaks a descriptor", "hygiene.files", "open (/dev/null)"},
    {"wrong_op", "off-by-one sum", "numerics.values.float.matmul@wrong/naive", "the fp64 oracle says"},
    {"wrong_op", "writes outside of its output", "numerics.values.float.matmul@wrong/naive",
     "writes outside of its output"},
    {"wrong_op", "reads 4 bytes beyond X", "numerics.values.float.matmul@wrong/naive",
     "reads outside of argument 0, at byte"},
    {"wrong_op", "reads 4 bytes before X", "numerics.values.float.matmul@wrong/naive",
     "reads outside of argument 0, at byte -4"},
    {"wrong_op", "reads 4 bytes beyond the bias", "numerics.values.float.matmul@wrong/naive",
     "reads outside of argument 1, at byte"},
    {"wrong_op", "reads 4 bytes beyond the residual", "numerics.values.float.matmul@wrong/naive",
     "reads outside of argument 2, at byte"},
    {"wrong_op", "changes its input", "numerics.values.float.matmul@wrong/naive", "the input is changed"},
    {"wrong_op", "leaves memory when activate fails", "lifecycle.failures",
     "activate whose host call 4 (register_thing) fails leaves 1 blocks of host memory"},
    {"wrong_op", "refuses without a reason", "truth.supports.matmul@wrong/naive", "NO without a reason"},
    {"wrong_op", "answers two things to one query", "truth.supports.matmul@wrong/naive",
     "answers two things to one query"},
    {"wrong_op", "installs a signal handler", "hygiene.signals", "installs a handler of signal 10"},
    {"wrong_file", "installs one when it is opened", "hygiene.signals", "installs a handler of signal 12"},
    {"wrong_op", "changes the rounding mode", "hygiene.process", "changes the rounding mode"},
    {"wrong_op", "aborts", "lifecycle.repeat", "signal 6"},
    {"wrong_op", "lists what it does not register", "abi.things",
     "lists op:matmul24@wrong, it is not registered"},
    {"wrong_op", "activates only once", "lifecycle.repeat", "activation 2 fails: BS-WRONG-ONCE"},
    {"wrong_op", "swallows NaN", "numerics.special.matmul@wrong/naive", "the fp64 oracle says nan"},
    {"wrong_op", "flushes subnormals", "numerics.subnormal.matmul@wrong/naive", "is 0, the fp64 oracle says"},
    {"wrong_op", "leaks device memory", "numerics.values.float.matmul@wrong/naive",
     "blocks of device memory"},
    {"wrong_file", "exports a second symbol", "abi.symbols", "exports 2 symbols, one is allowed"},
    {"wrong_op", "wrong struct size", "abi.host", "BS-PLG-SIZE"},
    {"wrong_op", "forgets the bias", "numerics.values.float.matmul@wrong/naive", "bias=f32"},
    {"wrong_op", "exits", "lifecycle.repeat", "the plugin ends the process: it may not call exit"},
    {"wrong_op", "dropped tile", "numerics.values.float.matmul@wrong/naive", "output [0,8] is"},
    {"wrong_op", "static scratch in an op", "threads.plans.matmul@wrong/naive",
     "the stopped one gets other values than alone"},
    {"wrong_file", "thread-local storage", "hygiene.tls", "has 8 bytes of thread-local storage"},
    {"wrong_op", "second OpenMP runtime", "hygiene.threads",
     "brings a second OpenMP runtime: libgomp libomp.so"},
    {"wrong_op", "leaves memory when a device does not open", "lifecycle.device.wrong",
     "a device whose host call 1 (alloc) fails leaves 1 blocks of host memory"},
    {"wrong_op", "ignores a team that fails", "lifecycle.memory.matmul@wrong/naive",
     "(parallel_for 1 fails): output [0,0] is"},
    {"wrong_op", "runs the rows of prepare", "numerics.rows.matmul@wrong/naive",
     "writes outside of its output"},
    {"wrong_op", "a packed weight for one number of rows", "numerics.rows.matmul@wrong/naive",
     "prepared for 7 rows, packed for 5"},
    {"wrong_op", "wants more alignment than an element's", "truth.supports.matmul@wrong/naive",
     "x is not at a cache line"},
    {"wrong_op", "looser than what is asked for", "truth.supports.matmul@wrong/naive",
     "sums are asked for in f64, and supports answers native with tolerance class 2"},
    {"wrong_op", "UNKNOWN and wrong", "numerics.values.float.matmul@wrong/naive", "the fp64 oracle says"},
    {"wrong_op", "other bits over a part of the columns", "numerics.values.float.matmul@wrong/naive",
     "a second run gives other bits"},
    {"wrong_op", "leaves an exit handler", "hygiene.exit", "leaves a handler of exit behind"},
    {"wrong_op", "a clock that goes backwards", "numerics.device.wrong", "event_elapsed tells -1 s"},
    {"wrong_op", "a stream that does not wait", "numerics.device.wrong",
     "behind stream_wait does not see the work before its event"},
    {"wrong_op", "clears the environment", "hygiene.environment", "out of the environment"},
    {"wrong_f64", "flushes subnormals of f64", "numerics.subnormal.matmul@wrong/naive", "x=f64"},
    {"wrong_quantize", "clears its output before it reads", "numerics.in_place.activate@ref/wrong_activate",
     ", in place: output [0,0] is 0"},
    {"wrong_op", "swaps the places of one group", "numerics.values.float.matmul24@wrong/naive",
     "the fp64 oracle says"},
    {"wrong_op", "takes the other half", "numerics.values.float.matmul24@wrong/naive",
     "the fp64 oracle says"},
    {"wrong_op", "places from values", "numerics.packed.matmul24@wrong/naive", "reads back as"},
    {"wrong_op", "counts what is not kept", "numerics.special.matmul24@wrong/naive", "the fp64 oracle says"},
    {"wrong_quantize", "rounds halves away from zero", "numerics.values.float.quantize_groups@ref/naive",
     "q ["},
    {"wrong_quantize", "a NaN gets a finite scale", "numerics.special.quantize_groups@ref/naive",
     "the definition gives nan"},
    {"wrong_quantize", "adds terms from the last", "numerics.values.float.dequantize_sum@ref/naive",
     "the definition gives"},
    {"wrong_quantize", "one scale for all columns", "numerics.values.float.dequantize_product@ref/naive",
     "the definition gives"},
    {"wrong_quantize", "clears its output before it reads base",
     "numerics.in_place.dequantize_product@ref/naive", "the definition gives"},
    {"wrong_quantize", "rows that share scales have their own",
     "numerics.values.float.quantize_groups@ref/naive", "the scale ["},
    {"wrong_quantize", "rounds fp8 toward zero", "numerics.values.float.quantize_groups@ref/naive", "q ["},
    {"wrong_quantize", "one scale for all blocks", "numerics.values.float.scaled_matmul@ref/naive",
     "the fp64 oracle says"},
    {"wrong_quantize", "half the gradient of a square", "numerics.values.float.loss_gradient@ref/naive",
     "the fp64 oracle says"},
    {"wrong_q", "zero off by one", "numerics.values.float.matmul_q@ref/naive", "the sums of ops.md give"},
    {"wrong_q", "groups shifted", "numerics.values.float.matmul_q@ref/naive", "the sums of ops.md give"},
    {"wrong_q", "rounds the scales apart", "numerics.values.float.matmul_q@ref/naive", "x=f32 in bytes"},
    {"wrong_q", "forgets lows", "numerics.values.float.matmul_q@ref/naive", "the sums of ops.md give"},
    {"wrong_q", "forgets the steps of lows", "numerics.values.float.matmul_q@ref/naive", "l zero="},
    {"wrong_q", "multiplies and adds", "numerics.values.float.matmul_q@ref/naive", "bound 0"},
    {"wrong_q", "drops a last short group", "numerics.values.float.matmul_q@ref/naive",
     "the sums of ops.md give"},
    {"wrong_q", "sums of 16 bits", "numerics.values.float.matmul_q@ref/naive", "x=f32 in bytes"},
    {"wrong_q", "ignores the columns of a scale of X", "numerics.values.float.matmul_q@ref/naive",
     "attrs=1,"},
    {"wrong_q", "leaves out a column and claims f32", "numerics.values.float.matmul_q@ref/naive",
     "the fp64 oracle says"},
    {"wrong_q", "a scale of NaN counts as none", "numerics.special.matmul_q@ref/naive", "give nan, bound"},
    {"wrong_q", "a NaN of X is lost", "numerics.special.matmul_q@ref/naive", "x=f32 in bytes"},
    {"wrong_q", "packs no zeros", "numerics.packed.matmul_q@ref/naive", "reads back as"},
    {"wrong_q", "counts indices not from the end", "numerics.values.float.take_q@ref/naive",
     "the weight there is"},
    {"wrong_q", "takes the last row for one outside", "numerics.outside.take_q@ref/naive",
     "an index is outside of its dimension, and"},
    {"wrong_graph", "takes less for less or equal", "numerics.values.float.map@ref/naive",
     "the fp64 oracle says"},
    {"wrong_graph", "clears its output before its program reads it", "numerics.in_place.map@ref/naive",
     ", arg "},
    {"wrong_graph", "forgets eps", "numerics.values.float.normalize@ref/naive", "the fp64 oracle says"},
    {"wrong_graph", "normalizes the rows of prepare", "numerics.rows.normalize@ref/naive",
     "smaller than prepared"},
    {"wrong_graph", "reads keys behind their length", "numerics.values.float.attention@ref/naive",
     "is nan, the fp64 oracle says"},
    {"wrong_graph", "sees keys outside of the window", "numerics.values.float.attention@ref/naive",
     "the fp64 oracle says"},
    {"wrong_graph", "counts positions from the upper left", "numerics.values.float.attention@ref/naive",
     "attrs=2,"},
    {"wrong_graph", "leaves scores uncapped", "numerics.values.float.attention@ref/naive",
     "the fp64 oracle says"},
    {"wrong_graph", "gives all heads the first K and V", "numerics.values.float.attention@ref/naive",
     "the fp64 oracle says"},
    {"wrong_graph", "forgets alpha", "numerics.values.float.contract@ref/naive", "the fp64 oracle says"},
    {"wrong_graph", "one bias for all rows", "numerics.values.float.contract@ref/naive",
     "the fp64 oracle says"},
    {"wrong_graph", "the last of equal places", "numerics.values.float.reduce@ref/naive", "attrs=6,"},
    {"wrong_graph", "hides an index outside", "numerics.outside.take@ref/naive",
     "an index is outside of its dimension, and"},
    {"wrong_graph", "sets where it should combine", "numerics.values.float.put@ref/naive",
     "the fp64 oracle says"},
    {"wrong_graph", "the smallest for the largest", "numerics.values.float.topk@ref/naive", "is the one"},
    {"wrong_graph", "gradients of uncapped scores", "numerics.values.float.attention_dx@ref/naive",
     "the fp64 oracle says"},
    {"wrong_method", "claims fewer bytes", "method.exact.2.wrong_row", "payload bytes, it proposed"},
    {"wrong_method", "off-by-one shard", "method.exact.2.wrong_row", "y["},
    {"wrong_method", "proposes and does not build", "method.exact.2.wrong_row", "not today"},
    {"wrong_method", "no bias at all", "method.exact.2.wrong_row", "y["},
    {"wrong_method", "swapped mask", "method.exact.2.wrong_row", "y["},
    {"wrong_method", "bias on each rank", "method.exact.2.wrong_row", "y["},
    {"wrong_method", "deep stack", "method.driven.2.wrong_row", "wrong_row: forward uses 4"},
    {"wrong_method", "static scratch in a layer", "threads.worlds.wrong_row",
     "the stopped one gets other values than alone"},
    {"wrong_method", "mutable global", "hygiene.globals.wrong_row",
     "changes its global variable forwards_made"},
    {"wrong_method", "leaves memory when build fails", "lifecycle.layer.wrong_row",
     "a layer whose host call 2 (alloc) fails leaves 1 blocks of host memory"},
    {"wrong_method", "finds its layer by the thread", "method.driven.2.wrong_row",
     "in a world of 2 coroutines wrong_row fails"},
    {"wrong_method", "gradient of the input once a rank", "method.gradient.2.wrong_row", "dx["},
    {"wrong_method", "gradient of the bias once a rank", "method.gradient.2.wrong_row", "db["},
    {"wrong_method", "claims half of its backward FLOPs", "method.gradient.1.wrong_row",
     "FLOPs of a backward"},
    {"wrong_method", "steps up the slope", "method.gradient.1.wrong_row", "step 1: W["},
    {"wrong_method", "forgets its velocity", "method.gradient.1.wrong_row", "step 3: W["},
    {"wrong_method", "takes every step for the first", "method.gradient.1.wrong_row", "step 4: W["},
    {"wrong_method", "a bias that decays", "method.gradient.1.wrong_row", "step 2: bias["},
    {"wrong_method", "works in two places by turns", "method.repeats.1.wrong_row",
     "forward 3 gives ops and collectives"},
    {"wrong_method", "keeps its bias in memory of one call", "method.driven.2.wrong_row",
     "memory of one call (BS_LIFE_CALL) is not zero"},
    {"wrong_method", "claims fewer weight bytes", "method.driven.2.wrong_row",
     "bytes of weights, its proposal's weight_bytes are"},
    {"wrong_method", "claims less workspace", "method.driven.2.wrong_row",
     "of scratch and activations, its proposal's workspace_bytes are 1"},
    {"wrong_method", "names another collective", "method.exact.2.wrong_row",
     "collective 0 of a forward is of kind 0, it proposed kind 1"},
    {"wrong_op", "wrong from 1000 features on", "numerics.rows.matmul@wrong/naive", "the fp64 oracle says"},
    {"wrong_op", "keeps what it gave for the same tensors", "numerics.rows.matmul@wrong/naive",
     "with other inputs in the same tensors"},
    {"wrong_op", "reads beside its input", "numerics.values.float.matmul@wrong/naive",
     "reads outside of argument 0"},
    {"wrong_op", "silu of f32 said to be exact", "numerics.rows.matmul@wrong/naive", "act=3"},
    {"wrong_op", "a lone row in another order", "numerics.tokenwise.matmul@wrong/naive",
     "alone, gives other bits than the whole"},
    {"wrong_op", "strided rows in another order", "numerics.tokenwise.matmul@wrong/naive",
     "at other strides, gives other bits than the whole"},
    {"wrong_op", "a team in another order", "numerics.tokenwise.matmul@wrong/naive",
     "by a team of 4, gives other bits than the whole"},
    {"wrong_op", "odd features in another order", "numerics.tokenwise.matmul@wrong/naive",
     "alone, gives other bits than the whole"},
    {"wrong_op", "a table in another order", "numerics.tokenwise.matmul@wrong/naive",
     "by the table isa=portable, gives other bits than the whole"},
    {"wrong_op", "a knob that does not reach the plan", "numerics.knobs.matmul@wrong/naive",
     "asked rows=2, the plan reports rows=4"},
    {"wrong_op", "a value of a knob that is wrong", "numerics.knobs.matmul@wrong/naive", ", with rows=8"},
    {"wrong_method", "keeps the tensor of its first input", "method.repeats.1.wrong_row",
     "of the same x in another tensor"},
    {"wrong_method", "turns the sign of infinities", "method.real.1.wrong_row", "gate T3"},
    {"wrong_method", "a third forward that differs", "method.repeats.1.wrong_row",
     "of the same x in another tensor"},
    {"wrong_comm", "makes NaN zero", "communicator.values.all_reduce.wrong_comm", "with NaN and Inf"},
    {"wrong_comm", "leaves out the last of 63", "communicator.values.all_reduce.wrong_comm", "1 rows of 63"},
    {"wrong_comm", "wrong from 100,000 elements on", "communicator.values.all_reduce.wrong_comm",
     "1 rows of 100033"},
    {"wrong_work", "values that depend on the panel", "workload.stream.wrong_work", "differs"},
    {"wrong_work", "wrong shape declared", "workload.parts.wrong_work", "info declares"},
    {"wrong_work", "another stream at each opening", "workload.stream.wrong_work",
     "other values when it is opened again"},
    {"wrong_work", "leaves memory when open fails", "lifecycle.open.wrong_work",
     "a workload whose host call 2 (alloc) fails leaves 1 blocks of host memory"},
    {"wrong_work", "parts of one stream", "workload.parts.wrong_work",
     "X and W begin with the same 960 values"},
    {"wrong_work", "tells of other values than it gives", "workload.stream.wrong_work",
     "tells how it is made"},
    {"wrong_comm", "worlds that share memory", "threads.worlds.wrong_comm", "two worlds at once"},
    {"wrong_comm", "leaves memory when a world does not open", "lifecycle.world.wrong_comm",
     "a world whose host call 2 (alloc) fails leaves 1 blocks of host memory"},
    {"wrong_comm", "writes between rows", "communicator.values.all_reduce.wrong_comm",
     "writes between the rows of its output"},
    {"wrong_comm", "adds instead of the largest", "communicator.values.all_reduce.wrong_comm",
     "all_reduce max f32"},
    {"wrong_comm", "changes a collective's input", "communicator.values.all_reduce.wrong_comm",
     "changes its input"},
    {"wrong_comm", "answers late", "communicator.faults.late.wrong_comm",
     "its deadline is 200 ms, and a second more is the limit"},
    {"wrong_comm", "takes the newest message first", "communicator.exchange.wrong_exchange",
     "exchange of 6 messages"},
    {"wrong_comm", "loses the last of 17 elements", "communicator.exchange.wrong_exchange", "it was sent"},
    {"wrong_comm", "compares no sizes of messages", "communicator.exchange.mismatch.wrong_exchange",
     "it must be MISMATCH"},
    {"wrong_comm", "drops messages of no elements", "communicator.exchange.wrong_exchange",
     "another message"},
    {"wrong_attached", "each rank begins its sums with itself",
     "communicator.values.all_reduce.wrong_attached", "3 processes: all_reduce f32"},
    {"wrong_attached", "waits for a process that has died", "communicator.faults.killed.wrong_attached",
     "it must be RANK_FAILED"},
    {"wrong_attached", "compares no call sites", "communicator.faults.mismatch.wrong_attached",
     "it must be MISMATCH"},
    {"wrong_attached", "tells another rank than the launcher", "communicator.values.barrier.wrong_attached",
     "this process was started as rank"},
    {"wrong_attached", "compares no configurations", "communicator.faults.config.wrong_attached",
     "it must be MISMATCH"},
    {"wrong_attached", "negative zeros on some ranks", "communicator.values.all_reduce.wrong_attached",
     "ranks 0 and 1 of 2 get other bits"},
    {"wrong_attached", "loses the code of an abort", "communicator.faults.abort.wrong_attached",
     "finds 0 in native_code"},
    {"wrong_attached", "a rank that dies at its call", "communicator.values.all_reduce.wrong_attached",
     "rank 1 dies of signal 6 while it is at its calls"},
#if defined(BS_TEST_KIT_CXX)
    {"wrong_throw", "throws", "workload.stream.wrong_throw", "no exception may leave it"},
#endif
    {"liar", "sums nothing", "communicator.values.all_reduce.liar", "the serial oracle says"},
    {"liar", "never misses a rank", "communicator.faults.late.liar", "it must be DEADLINE"},
};

START_TEST(wrong_plugins_fail_with_the_right_sentence) {
  static kit_ran r;
  const char *plugin = wrongs[_i].plugin, *check = wrongs[_i].check, *sentence = wrongs[_i].sentence;
  char row[300];
  if (SANITIZED && strcmp(wrongs[_i].kind, "deep stack") == 0) return; /* not measured there */
#if defined(SIM_TSAN) /* the build for what threads do to one another */
  if (strncmp(check, "threads.", 8) != 0 && strncmp(check, "communicator.", 13) != 0) return;
#endif
  /* The kit finds shared memory by itself, without ThreadSanitizer's reports. */
  kit_shell(&r, "TSAN_OPTIONS=report_bugs=0 '%s' '%s/bs_%s.so' --param \"fault=%s\" --only '%s' 2>&1",
            kit_bin("bs-conformance"), BS_TEST_KIT_DIR, plugin, wrongs[_i].kind, check);
  ck_assert_msg(r.code == 5, "%s: exit %d: %s", plugin, r.code, r.text);
  snprintf(row, sizeof row, "  FAIL        %s: ", check);
  ck_assert_msg(kit_line_has(r.text, row, sentence), "%s: no '%s' with '%s' in %s", plugin, row, sentence,
                r.text);
  ck_assert_ptr_nonnull(strstr(r.text, "NOT blockshock-conformant"));
  ck_assert_ptr_nonnull(strstr(r.text, "error[BS-KIT-FAILED]"));
}
END_TEST

/* Each kind is there once. */
START_TEST(kinds_are_many) {
  enum { N = sizeof wrongs / sizeof wrongs[0] };
  for (size_t i = 0; i < N; i++) {
    for (size_t k = 0; k < i; k++) ck_assert_str_ne(wrongs[i].kind, wrongs[k].kind);
  }
  ck_assert_uint_ge(N, 150); /* docs/conformance.md */
}
END_TEST

/* Without a fault; of some only the checks that their faults are found by (kit_ref grades all of
 * wrong_graph's ops). */
static const struct {
  const char *plugin, *group;
} rights[] = {{"wrong_op", NULL},
              {"wrong_needy", NULL},
              {"wrong_f64", "numerics.subnormal"},
              {"wrong_quantize", NULL},
              {"wrong_q", NULL},
              {"wrong_graph", "numerics.values"},
              {"wrong_graph", "numerics.in_place"},
              {"wrong_graph", "numerics.outside"},
              {"wrong_graph", "numerics.rows"},
              {"wrong_method", NULL},
              {"wrong_attached", NULL},
              {"wrong_work", NULL},
              {"wrong_comm", "communicator.values.all_reduce.wrong_comm"},
              {"wrong_comm", "communicator.faults.late.wrong_comm"},
              {"wrong_comm", "communicator.exchange"},
              {"wrong_comm", "lifecycle"},
              {"wrong_comm", "threads"}};

START_TEST(the_right_ones_grade_clean) {
  static kit_ran r;
  const char *plugin = rights[_i].plugin, *group = rights[_i].group;
  kit_shell(&r, "'%s' '%s/bs_%s.so' %s %s 2>&1", kit_bin("bs-conformance"), BS_TEST_KIT_DIR, plugin,
            group != NULL ? "--only" : "", group != NULL ? group : "");
  ck_assert_msg(r.code == 0, "%s: exit %d: %s", plugin, r.code, r.text);
  ck_assert_ptr_nonnull(strstr(r.text, group != NULL ? "\npartial: group " : "\nblockshock-conformant "));
}
END_TEST

int main(void) {
  const test_case tests[] = {{wrong_plugins_fail_with_the_right_sentence, TEST_COUNT(wrongs)},
                             {kinds_are_many},
                             {the_right_ones_grade_clean, TEST_COUNT(rights)},
                             {0}};
  return run_tests("kit_wrong", tests, (test_setup){.timeout = 120, .at_once = 3});
}
