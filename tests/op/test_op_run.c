/* SPDX-License-Identifier: MIT
 * test_op_run.c - run refuses what was not prepared and counts what it did; slots that an implementation may
 * leave out; ops that only a plugin defines. Implementations here are actors (op_actor.h). */
#include <string.h>

#include "op_actor.h"
#include "tests/run_tests.h"

START_TEST(optional_slots) {
  fx f;
  actor a = {.level = BS_LEVEL_NATIVE};
  bs_op_impl impl = fx_actor_impl("matmul", "bare", 0);
  bs_packed *packed = NULL;
  fx_tensor delta;
  bs_error err = BS_ERROR_INIT;
  impl.packed_update = NULL;
  impl.packed_read = NULL;
  fx_open(&f, 1, 0);
  fx_add("stage", &impl, &a);
  fx_matrix(&delta, BS_F32, 6, 8);
  bs_op_query q = fx_matmul_query();
  const bs_source w = fx_source_of(6, 8);
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &w, &packed, &err), BS_OK);
  ck_assert_int_eq(bs_dispatch_packed_update(packed, &delta.t, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-OP-UPDATE");
  ck_assert_int_eq(bs_dispatch_packed_read(packed, 0, &delta.t, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-OP-READ");
  bs_dispatch_packed_release(packed);
  impl.pack = NULL;
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &w, &packed, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-OP-PACK");
  fx_tensor_free(&delta);
  fx_close(&f);
}
END_TEST

START_TEST(run_checks_its_arguments) {
  fx f;
  actor a = {.level = BS_LEVEL_NATIVE};
  const bs_op_impl impl = fx_actor_impl("convert", "a", 0);
  fx_tensor x, y;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  fx_open(&f, 1, 0);
  fx_add("stage", &impl, &a);
  fx_matrix(&x, BS_F32, 4, 8);
  fx_matrix(&y, BS_F16, 4, 8);
  const bs_op_query q = fx_convert_query();
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, NULL, &plan, &err), BS_OK);
  bs_tensor in = x.t, out = y.t;
  bs_tensor *args[3] = {&in, &out, NULL};
  ck_assert_int_eq(bs_dispatch_run(plan, args, 2, NULL, &err), BS_OK);
  ck_assert_uint_eq(f.counters[BS_COUNT_OP_BYTES], 4 * 8 * (4 + 2));
  in.dims[0] = out.dims[0] = 3; /* a smaller batch costs less */
  ck_assert_int_eq(bs_dispatch_run(plan, args, 2, NULL, &err), BS_OK);
  ck_assert_uint_eq(f.counters[BS_COUNT_OP_BYTES], 7 * 8 * (4 + 2));
  in.dims[0] = out.dims[0] = 0;
  in.data = out.data = NULL;
  ck_assert_int_eq(bs_dispatch_run(plan, args, 2, NULL, &err), BS_OK);
  const int runs = a.runs;
  ck_assert_int_eq(runs, 3);
  for (int wrong = 0; wrong < 11; wrong++) {
    uint32_t nargs = 2;
    in = x.t;
    out = y.t;
    args[0] = &in;
    args[1] = &out;
    switch (wrong) {
      case 0:
        nargs = 3;
        break;
      case 1:
        in.dims[0] = 3; /* batches differ */
        break;
      case 2:
        in.dims[0] = out.dims[0] = 5;
        break;
      case 3:
        in.dims[1] = 7;
        break;
      case 4:
        in.dtype = BS_F16;
        break;
      case 5:
        args[1] = NULL;
        break;
      case 6:
        in.data = NULL;
        break;
      case 7:
        in.strides[0] = 9;
        break;
      case 8:
        out.strides[1] = 2;
        break;
      case 9:
        out.bytes--;
        break;
      default:
        in.rank = 1;
        break;
    }
    bs_error_clear(&err);
    ck_assert_msg(bs_dispatch_run(plan, args, nargs, NULL, &err) == BS_INVALID_ARGUMENT, "case %d ran",
                  wrong);
    ck_assert_str_eq(err.id, "BS-OP-RUN");
    ck_assert_int_eq(bs_dispatch_run(plan, args, nargs, NULL, NULL), BS_INVALID_ARGUMENT);
  }
  ck_assert_int_eq(a.runs, runs);
  in = x.t;
  out = y.t;
  args[0] = &in;
  args[1] = &out;
  in.dims[0] = out.dims[0] = 1; /* one row: its stride is not used */
  in.strides[0] = 77;
  in.bytes = 8 * 4;
  ck_assert_int_eq(bs_dispatch_run(plan, args, 2, NULL, &err), BS_OK);
  const uint64_t counted = f.counters[BS_COUNT_OP_BYTES];
  a.run_rc = BS_RANK_FAILED;
  a.silent = 1;
  ck_assert_int_eq(bs_dispatch_run(plan, args, 2, NULL, &err), BS_RANK_FAILED);
  ck_assert_str_eq(err.plugin, "stage");
  ck_assert_str_eq(err.id, "BS-OP-FAILED");
  ck_assert_uint_eq(f.counters[BS_COUNT_OP_BYTES], counted); /* what failed is not counted */
  bs_dispatch_release(plan);
  ck_assert_int_eq(a.plan_frees, 1);
  fx_tensor_free(&x);
  fx_tensor_free(&y);
  fx_close(&f);
}
END_TEST

/* An address that is no multiple of the element's size. */
START_TEST(data_is_aligned) {
  fx f;
  actor a = {.level = BS_LEVEL_NATIVE};
  const bs_op_impl impl = fx_actor_impl("convert", "a", 0);
  fx_tensor x, y;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  fx_open(&f, 1, 0);
  fx_add("stage", &impl, &a);
  fx_matrix(&x, BS_F32, 4, 8);
  fx_matrix(&y, BS_F16, 4, 8);
  const bs_op_query q = fx_convert_query();
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, NULL, &plan, &err), BS_OK);
  bs_tensor in = x.t, out = y.t;
  bs_tensor *args[2] = {&in, &out};
  in.data = (char *)x.t.data + 4; /* of the size of an element, no more */
  out.data = (char *)y.t.data + 2;
  ck_assert_int_eq(bs_dispatch_run(plan, args, 2, NULL, &err), BS_OK);
  for (int bytes = 1; bytes < 4; bytes++) {
    in.data = (char *)x.t.data + bytes;
    ck_assert_int_eq(bs_dispatch_run(plan, args, 2, NULL, &err), BS_INVALID_ARGUMENT);
    ck_assert_str_eq(err.id, "BS-OP-ALIGN");
    ck_assert_ptr_nonnull(strstr(err.message, "arg 0 is f32"));
  }
  in = x.t;
  out.data = (char *)y.t.data + 1;
  ck_assert_int_eq(bs_dispatch_run(plan, args, 2, NULL, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-ALIGN");
  ck_assert_ptr_nonnull(strstr(err.message, "arg 1 is f16"));
  ck_assert_int_eq(a.runs, 1);
  in.dims[0] = out.dims[0] = 0; /* nothing is there */
  ck_assert_int_eq(bs_dispatch_run(plan, args, 2, NULL, &err), BS_OK);
  bs_dispatch_release(plan);
  fx_tensor_free(&x);
  fx_tensor_free(&y);
  fx_close(&f);
}
END_TEST

/* What is wrong with a tensor of f32[6,8], or NULL when there is no such case. */
static const char *spoil(int fault, bs_tensor *t) {
  switch (fault) {
    case 0:
      t->data = NULL;
      return "BS-OP-WHAT";
    case 1:
      t->bytes--;
      return "BS-OP-WHAT";
    case 2:
      t->strides[0] = 9; /* its last row ends behind its bytes */
      return "BS-OP-WHAT";
    case 3:
      t->strides[0] = t->strides[1] = 0; /* dense in a query, not in a view */
      return "BS-OP-WHAT";
    case 4:
      t->dtype = 0x1234;
      return "BS-OP-WHAT";
    case 5:
      t->rank = BS_MAX_DIMS + 1;
      return "BS-OP-WHAT";
    case 6:
      t->strides[0] = -8;
      return "BS-OP-SHAPE";
    case 7:
      t->strides[0] = INT64_MAX / 2;
      return "BS-OP-SIZE";
    case 8:
      t->data = (char *)t->data + 2;
      return "BS-OP-ALIGN";
    default:
      return NULL;
  }
}

static void view_refused(int32_t rc, const bs_error *err, const char *id, const char *own, int fault) {
  ck_assert_msg(rc == BS_INVALID_ARGUMENT, "%s took case %d", own, fault);
  ck_assert_str_eq(err->id, strcmp(id, "BS-OP-WHAT") == 0 ? own : id);
}

START_TEST(packed_weights_see_whole_tensors_only) {
  fx f;
  actor a = {.level = BS_LEVEL_NATIVE};
  const bs_op_impl impl = fx_actor_impl("matmul", "a", 0);
  bs_packed *packed = NULL;
  fx_tensor w;
  bs_error err = BS_ERROR_INIT;
  const char *id;
  fx_open(&f, 1, 0);
  fx_add("stage", &impl, &a);
  fx_matrix(&w, BS_F32, 6, 8);
  const bs_op_query q = fx_matmul_query();
  const bs_source source = fx_source_of(6, 8);
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &source, &packed, &err), BS_OK);
  ck_assert_int_eq(bs_dispatch_packed_update(packed, &w.t, &err), BS_OK);
  ck_assert_int_eq(bs_dispatch_packed_read(packed, 0, &w.t, &err), BS_OK);
  bs_tensor t = w.t;
  for (int fault = 0; (id = spoil(fault, &t)) != NULL; fault++, t = w.t) {
    view_refused(bs_dispatch_packed_update(packed, &t, &err), &err, id, "BS-OP-UPDATE", fault);
    view_refused(bs_dispatch_packed_read(packed, 0, &t, &err), &err, id, "BS-OP-READ", fault);
    ck_assert_int_eq(bs_dispatch_packed_read(packed, 0, &t, NULL), BS_INVALID_ARGUMENT);
  }
  view_refused(bs_dispatch_packed_update(packed, NULL, &err), &err, "BS-OP-UPDATE", "", -1);
  view_refused(bs_dispatch_packed_read(packed, 0, NULL, &err), &err, "BS-OP-READ", "", -1);
  t.strides[0] = 4; /* rows that run into each other: to be read, not to be written */
  ck_assert_int_eq(bs_dispatch_packed_update(packed, &t, &err), BS_OK);
  view_refused(bs_dispatch_packed_read(packed, 0, &t, &err), &err, "BS-OP-SHAPE", "", -1);
  t = w.t;
  t.dims[0] = 0; /* no rows need no data */
  t.data = NULL;
  t.bytes = 0;
  ck_assert_int_eq(bs_dispatch_packed_read(packed, 6, &t, &err), BS_OK);
  ck_assert_int_eq(a.updates, 2);
  ck_assert_int_eq(a.reads, 2);
  bs_dispatch_packed_release(packed);
  fx_tensor_free(&w);
  fx_close(&f);
}
END_TEST

START_TEST(plugin_defined_op) {
  fx f;
  actor a = {.level = BS_LEVEL_NATIVE};
  const bs_op_impl impl = fx_actor_impl("acme_scan", "a", 0);
  fx_tensor t;
  const int64_t dims[3] = {2, 3, 4};
  bs_plan *plan = NULL;
  bs_packed *packed = NULL;
  bs_error err = BS_ERROR_INIT;
  fx_open(&f, 1, 0);
  fx_add("stage", &impl, &a);
  fx_tensor_make(&t, BS_I64, 3, dims, NULL);
  const bs_tensor_desc *descs[2] = {&t.d, NULL};
  bs_tensor *args[2] = {&t.t, NULL};
  bs_op_query q = fx_query("acme_scan", descs, 2);
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, NULL, &plan, &err), BS_OK);
  ck_assert_int_eq(bs_dispatch_run(plan, args, 2, NULL, &err), BS_OK);
  ck_assert_str_eq(f.notes, "acme_scan@ref/a\n");
  ck_assert_uint_eq(f.counters[BS_COUNT_OP_BYTES], 0);
  bs_dispatch_release(plan);
  const bs_source w = fx_source_of(3, 5); /* weights of any shape are the plugin's affair */
  q.weight_dtype = BS_F32;
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &w, &packed, &err), BS_OK);
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, packed, &plan, &err), BS_OK);
  bs_dispatch_release(plan);
  bs_dispatch_packed_release(packed);
  fx_tensor_free(&t);
  fx_close(&f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{optional_slots},    {run_checks_its_arguments},
                             {data_is_aligned},   {packed_weights_see_whole_tensors_only},
                             {plugin_defined_op}, {0}};
  return run_tests("op_run", tests, (test_setup){0});
}
