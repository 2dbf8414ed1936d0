/* SPDX-License-Identifier: MIT
 * test_ref_device.c - ref's backend: one device of host memory, aligned and zero-filled; its descriptor says
 * what it registers; activate fails cleanly. */
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

static const bs_backend *backend;
static void *backend_state;
static int ops_registered;

static int32_t catch_thing(void *ctx, bs_plugin_self *self, uint32_t kind, const void *vtable, void *state,
                           const bs_src_loc *at, bs_error *err) {
  (void)ctx;
  const int *refuse_at = (const int *)(const void *)self; /* the tests hand a number over as the handle */
  ck_assert(at->file != NULL && at->line > 0);
  if (refuse_at != NULL && ops_registered == *refuse_at)
    return bs_error_set(err, BS_PLUGIN, "FX-REFUSED", "refused");
  if (kind == BS_KIND_BACKEND) {
    backend = vtable;
    backend_state = state;
  } else {
    const bs_op_impl *impl = vtable;
    ck_assert_str_eq(impl->backend, "ref");
    ck_assert_uint_eq(impl->struct_size, sizeof *impl);
    ops_registered++;
  }
  return BS_OK;
}

START_TEST(memory_is_aligned_zeroed_and_copied) {
  fx f;
  bs_error err = BS_ERROR_INIT;
  void *device = NULL, *second = NULL, *p = NULL, *empty = NULL;
  uint32_t count = 0;
  bs_device_info info = {.struct_size = (uint32_t)sizeof info};
  fx_open(&f, 1, 0);
  f.host.register_thing = catch_thing;
  ck_assert_int_eq(bs_plugin_query_static_ref(0, 0)->activate(&f.host, NULL, &f.state, &err), BS_OK);
  ck_assert_uint_eq(ops_registered, BS_CORE_OPS);
  ck_assert_str_eq(backend->name, "ref");
  ck_assert_uint_eq(backend->flags, BS_BACKEND_HOST_MEMORY | BS_BACKEND_SYNC);
  ck_assert_int_eq(backend->device_count(backend_state, &count, &err), BS_OK);
  ck_assert_uint_eq(count, 1);
  ck_assert_int_eq(backend->device_info(backend_state, 0, &info, &err), BS_OK);
  ck_assert_uint_gt(info.memory_bytes, 1 << 20);
  ck_assert_uint_gt(strlen(info.detail), 0);
  ck_assert_int_eq(backend->device_info(backend_state, 1, &info, &err), BS_UNAVAILABLE);
  ck_assert_int_eq(backend->device_open(backend_state, 1, &device, &err), BS_UNAVAILABLE);
  ck_assert_str_eq(err.id, "BS-REF-DEVICE");
  ck_assert_int_eq(backend->device_open(backend_state, 0, &device, &err), BS_OK);
  ck_assert_int_eq(backend->device_open(backend_state, 0, &second, &err), BS_OK); /* two ranks, one device */
  for (uint64_t align = 1; align <= 4096; align *= 64) {
    ck_assert_int_eq(backend->mem_alloc(device, 1000, align, &p, &err), BS_OK);
    ck_assert_uint_eq((uintptr_t)p % (align < 64 ? 64 : align), 0);
    for (int i = 0; i < 1000; i++)
      if (((unsigned char *)p)[i] != 0) ck_abort_msg("byte %d is not zero", i);
    backend->mem_free(device, p);
  }
  ck_assert_int_eq(backend->mem_alloc(device, 0, 0, &empty, &err), BS_OK);
  backend->mem_free(device, empty);
  char from[6] = "shock", to[6] = "";
  ck_assert_int_eq(backend->mem_copy(device, to, from, sizeof from, BS_COPY_DEVICE_TO_HOST, NULL, &err),
                   BS_OK);
  ck_assert_str_eq(to, "shock");
  ck_assert_int_eq(backend->mem_copy(device, NULL, NULL, 0, BS_COPY_HOST_TO_DEVICE, NULL, &err), BS_OK);
  ck_assert_int_eq(backend->mem_copy(device, to, from, 1, 9, NULL, &err), BS_INVALID_ARGUMENT);
  f.fail_alloc_at = 1;
  ck_assert_int_eq(backend->mem_alloc(device, 10, 64, &p, &err), BS_NO_MEMORY);
  backend->device_close(device);
  backend->device_close(second);
  fx_close(&f);
}
END_TEST

START_TEST(activate_fails_cleanly) {
  const bs_plugin_desc *desc = bs_plugin_query_static_ref(BS_ABI_VERSION, 0);
  ck_assert_str_eq(desc->id, "ref");
  ck_assert_uint_eq(desc->abi, BS_ABI_VERSION);
  ck_assert_uint_eq(desc->kinds, 1u << BS_KIND_BACKEND | 1u << BS_KIND_OP);
  for (int refuse_at = 0; refuse_at < 8; refuse_at++) {
    fx f;
    void *state = NULL;
    bs_error err = BS_ERROR_INIT;
    fx_open(&f, 1, 0);
    f.host.register_thing = catch_thing;
    ops_registered = 0;
    ck_assert_int_eq(desc->activate(&f.host, (bs_plugin_self *)(void *)&refuse_at, &state, &err), BS_PLUGIN);
    ck_assert_str_eq(err.id, "FX-REFUSED");
    ck_assert_int_eq(ops_registered, refuse_at);
    fx_close(&f); /* nothing of it stays allocated */
  }
  fx f;
  void *state = NULL;
  bs_error err = BS_ERROR_INIT;
  fx_open(&f, 1, 0);
  f.fail_alloc_at = 1;
  ck_assert_int_eq(desc->activate(&f.host, NULL, &state, &err), BS_NO_MEMORY);
  fx_close(&f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{memory_is_aligned_zeroed_and_copied}, {activate_fails_cleanly}, {0}};
  return run_tests("ref_device", tests, (test_setup){0});
}
