/* SPDX-License-Identifier: MIT
 * slots.c - the table of required slots and its check. Called by stage.c at registration. */
#include "core/plugin/slots.h"

#include <string.h>

#include "core/base/error.h"
#include "core/plugin/plugins.h"

const bs_slot bs_slots[] = {
    {BS_KIND_OP, BS_SLOT_ALWAYS, "op", offsetof(bs_op_impl, op)},
    {BS_KIND_OP, BS_SLOT_ALWAYS, "backend", offsetof(bs_op_impl, backend)},
    {BS_KIND_OP, BS_SLOT_ALWAYS, "name", offsetof(bs_op_impl, name)},
    {BS_KIND_OP, BS_SLOT_ALWAYS, "supports", offsetof(bs_op_impl, supports)},
    {BS_KIND_OP, BS_SLOT_ALWAYS, "prepare", offsetof(bs_op_impl, prepare)},
    {BS_KIND_OP, BS_SLOT_ALWAYS, "run", offsetof(bs_op_impl, run)},
    {BS_KIND_OP, BS_SLOT_ALWAYS, "plan_free", offsetof(bs_op_impl, plan_free)},
    {BS_KIND_OP, BS_SLOT_MATMUL, "pack", offsetof(bs_op_impl, pack)},
    {BS_KIND_OP, BS_SLOT_MATMUL, "packed_free", offsetof(bs_op_impl, packed_free)},
    {BS_KIND_OP, BS_SLOT_KNOBS, "echo", offsetof(bs_op_impl, echo)},
    {BS_KIND_BACKEND, BS_SLOT_ALWAYS, "name", offsetof(bs_backend, name)},
    {BS_KIND_BACKEND, BS_SLOT_ALWAYS, "device_count", offsetof(bs_backend, device_count)},
    {BS_KIND_BACKEND, BS_SLOT_ALWAYS, "device_info", offsetof(bs_backend, device_info)},
    {BS_KIND_BACKEND, BS_SLOT_ALWAYS, "device_open", offsetof(bs_backend, device_open)},
    {BS_KIND_BACKEND, BS_SLOT_ALWAYS, "device_close", offsetof(bs_backend, device_close)},
    {BS_KIND_BACKEND, BS_SLOT_ALWAYS, "mem_alloc", offsetof(bs_backend, mem_alloc)},
    {BS_KIND_BACKEND, BS_SLOT_ALWAYS, "mem_free", offsetof(bs_backend, mem_free)},
    {BS_KIND_BACKEND, BS_SLOT_ALWAYS, "mem_copy", offsetof(bs_backend, mem_copy)},
    {BS_KIND_BACKEND, BS_SLOT_ASYNC, "stream_create", offsetof(bs_backend, stream_create)},
    {BS_KIND_BACKEND, BS_SLOT_ASYNC, "stream_destroy", offsetof(bs_backend, stream_destroy)},
    {BS_KIND_BACKEND, BS_SLOT_ASYNC, "stream_sync", offsetof(bs_backend, stream_sync)},
    {BS_KIND_BACKEND, BS_SLOT_ASYNC, "event_create", offsetof(bs_backend, event_create)},
    {BS_KIND_BACKEND, BS_SLOT_ASYNC, "event_destroy", offsetof(bs_backend, event_destroy)},
    {BS_KIND_BACKEND, BS_SLOT_ASYNC, "event_record", offsetof(bs_backend, event_record)},
    {BS_KIND_BACKEND, BS_SLOT_ASYNC, "event_elapsed", offsetof(bs_backend, event_elapsed)},
    {BS_KIND_BACKEND, BS_SLOT_WRAPPER, "wrap_op", offsetof(bs_backend, wrap_op)},
    {BS_KIND_BACKEND, BS_SLOT_WRAPPER, "unwrap", offsetof(bs_backend, unwrap)},
    {BS_KIND_COMM, BS_SLOT_ALWAYS, "name", offsetof(bs_comm, name)},
    {BS_KIND_COMM, BS_SLOT_ALWAYS, "world_open", offsetof(bs_comm, world_open)},
    {BS_KIND_COMM, BS_SLOT_ALWAYS, "world_close", offsetof(bs_comm, world_close)},
    {BS_KIND_COMM, BS_SLOT_ALWAYS, "rank_open", offsetof(bs_comm, rank_open)},
    {BS_KIND_COMM, BS_SLOT_ALWAYS, "rank_close", offsetof(bs_comm, rank_close)},
    {BS_KIND_COMM, BS_SLOT_ALWAYS, "abort", offsetof(bs_comm, abort)},
    {BS_KIND_COMM, BS_SLOT_DRIVEN, "world_drive", offsetof(bs_comm, world_drive)},
    {BS_KIND_COMM, BS_SLOT_WRAPPER, "unwrap", offsetof(bs_comm, unwrap)},
    {BS_KIND_METHOD, BS_SLOT_ALWAYS, "name", offsetof(bs_method, name)},
    {BS_KIND_METHOD, BS_SLOT_ALWAYS, "propose", offsetof(bs_method, propose)},
    {BS_KIND_METHOD, BS_SLOT_ALWAYS, "build", offsetof(bs_method, build)},
    {BS_KIND_METHOD, BS_SLOT_ALWAYS, "forward", offsetof(bs_method, forward)},
    {BS_KIND_METHOD, BS_SLOT_ALWAYS, "owns", offsetof(bs_method, owns)},
    {BS_KIND_METHOD, BS_SLOT_ALWAYS, "read_weights", offsetof(bs_method, read_weights)},
    {BS_KIND_METHOD, BS_SLOT_ALWAYS, "layer_free", offsetof(bs_method, layer_free)},
    {BS_KIND_WORKLOAD, BS_SLOT_ALWAYS, "name", offsetof(bs_workload, name)},
    {BS_KIND_WORKLOAD, BS_SLOT_ALWAYS, "open", offsetof(bs_workload, open)},
    {BS_KIND_WORKLOAD, BS_SLOT_ALWAYS, "info", offsetof(bs_workload, info)},
    {BS_KIND_WORKLOAD, BS_SLOT_ALWAYS, "source", offsetof(bs_workload, source)},
    {BS_KIND_WORKLOAD, BS_SLOT_ALWAYS, "close", offsetof(bs_workload, close)},
    {BS_KIND_IMPORTER, BS_SLOT_ALWAYS, "name", offsetof(bs_importer, name)},
    {BS_KIND_IMPORTER, BS_SLOT_ALWAYS, "match", offsetof(bs_importer, match)},
    {BS_KIND_IMPORTER, BS_SLOT_ALWAYS, "open", offsetof(bs_importer, open)},
    {BS_KIND_IMPORTER, BS_SLOT_ALWAYS, "tensor_count", offsetof(bs_importer, tensor_count)},
    {BS_KIND_IMPORTER, BS_SLOT_ALWAYS, "tensor_info", offsetof(bs_importer, tensor_info)},
    {BS_KIND_IMPORTER, BS_SLOT_ALWAYS, "tensor_source", offsetof(bs_importer, tensor_source)},
    {BS_KIND_IMPORTER, BS_SLOT_ALWAYS, "close", offsetof(bs_importer, close)},
    {BS_KIND_ALGORITHM, BS_SLOT_ALWAYS, "name", offsetof(bs_algorithm, name)},
    {BS_KIND_ALGORITHM, BS_SLOT_NO_COST, "schedule", offsetof(bs_algorithm, schedule)},
    {BS_KIND_TOPOLOGY, BS_SLOT_ALWAYS, "name", offsetof(bs_topology, name)},
    {BS_KIND_TOPOLOGY, BS_SLOT_ALWAYS, "open", offsetof(bs_topology, open)},
    {BS_KIND_TOPOLOGY, BS_SLOT_ALWAYS, "route", offsetof(bs_topology, route)},
    {BS_KIND_TOPOLOGY, BS_SLOT_ALWAYS, "close", offsetof(bs_topology, close)},
};
const uint32_t bs_slot_count = sizeof bs_slots / sizeof bs_slots[0];

size_t bs_kind_size(uint32_t kind) {
  switch (kind) {
    case BS_KIND_OP:
      return sizeof(bs_op_impl);
    case BS_KIND_BACKEND:
      return sizeof(bs_backend);
    case BS_KIND_COMM:
      return sizeof(bs_comm);
    case BS_KIND_METHOD:
      return sizeof(bs_method);
    case BS_KIND_WORKLOAD:
      return sizeof(bs_workload);
    case BS_KIND_IMPORTER:
      return sizeof(bs_importer);
    case BS_KIND_ALGORITHM:
      return sizeof(bs_algorithm);
    case BS_KIND_TOPOLOGY:
      return sizeof(bs_topology);
    default:
      return 0;
  }
}

/* Becomes a list of constants when 1.0 is released (docs/dev/abi.md). */
size_t bs_kind_frozen_size(uint32_t kind) {
  return bs_kind_size(kind);
}

static int needed(const bs_slot *slot, const void *vtable) {
  switch (slot->when) {
    case BS_SLOT_MATMUL: {
      const char *op = ((const bs_op_impl *)vtable)->op;
      const int packs = op != NULL && strncmp(op, "matmul", 6) == 0;
      return packs && (op[6] == '\0' || strcmp(op + 6, "24") == 0 || strcmp(op + 6, "_q") == 0);
    }
    case BS_SLOT_ASYNC:
      return (((const bs_backend *)vtable)->flags & BS_BACKEND_SYNC) == 0;
    case BS_SLOT_DRIVEN:
      return ((const bs_comm *)vtable)->launch == BS_LAUNCH_DRIVEN;
    case BS_SLOT_WRAPPER:
      return slot->kind == BS_KIND_COMM ? ((const bs_comm *)vtable)->wrap != NULL
                                        : ((const bs_backend *)vtable)->wrap != NULL;
    case BS_SLOT_NO_COST:
      return ((const bs_algorithm *)vtable)->cost == NULL;
    case BS_SLOT_KNOBS:
      return ((const bs_op_impl *)vtable)->n_knobs > 0;
    default:
      return 1;
  }
}

static int32_t check_algorithm(const bs_algorithm *a, bs_error *err) {
  uint32_t n = 0;
  if (a->kinds == 0)
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-SLOT",
                        "algorithm slot 'kinds' is 0: it serves no collective");
  while (a->params != NULL && n <= BS_ALGORITHM_MAX_OPTIONS && a->params[n] != NULL) n++;
  if (n <= BS_ALGORITHM_MAX_OPTIONS) return BS_OK;
  return bs_error_set(err, BS_PLUGIN, "BS-PLG-SLOT",
                      "algorithm slot 'params' has more than %d options, or no NULL behind the last one",
                      BS_ALGORITHM_MAX_OPTIONS);
}

int32_t bs_slots_check(uint32_t kind, const void *vtable, bs_error *err) {
  static const char *const why[] = {"",
                                    " by every matmul",
                                    " by a backend without BS_BACKEND_SYNC",
                                    " by launch DRIVEN",
                                    " with wrap",
                                    " without cost",
                                    " with knobs"};
  for (uint32_t i = 0; i < bs_slot_count; i++) {
    const bs_slot *slot = &bs_slots[i];
    void *value; /* pointers to data and to code have one size and form on the systems we load from */
    if (slot->kind != kind || !needed(slot, vtable)) continue;
    memcpy(&value, (const char *)vtable + slot->offset, sizeof value);
    if (value == NULL)
      return bs_error_set(err, BS_PLUGIN, "BS-PLG-SLOT", "%s slot '%s' is NULL, it is required%s",
                          bs_kind_word(kind), slot->name, why[slot->when]);
  }
  if (kind == BS_KIND_COMM) {
    uint32_t launch = ((const bs_comm *)vtable)->launch;
    if (launch < BS_LAUNCH_THREADS || launch > BS_LAUNCH_DRIVEN)
      return bs_error_set(err, BS_PLUGIN, "BS-PLG-SLOT", "comm slot 'launch' is %u, known are %d to %d",
                          launch, BS_LAUNCH_THREADS, BS_LAUNCH_DRIVEN);
  }
  if (kind == BS_KIND_BACKEND) {
    const uint32_t both = BS_BACKEND_PHANTOM | BS_BACKEND_HOST_MEMORY;
    if ((((const bs_backend *)vtable)->flags & both) == both)
      return bs_error_set(err, BS_PLUGIN, "BS-PLG-SLOT",
                          "backend slot 'flags' has BS_BACKEND_PHANTOM and BS_BACKEND_HOST_MEMORY");
  }
  return kind == BS_KIND_ALGORITHM ? check_algorithm(vtable, err) : BS_OK;
}
