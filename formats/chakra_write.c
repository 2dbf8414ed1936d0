/* SPDX-License-Identifier: MIT
 * chakra_write.c - writing Chakra traces (chakra.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/out_file.h"
#include "core/base/text.h"
#include "formats/chakra.h"
#include "formats/pb.h"

#define VERSION "0.0.4"
#define PS_IN_US UINT64_C(1000000)

/* ---- messages ----------------------------------------------------------------------------------- */

static void put_varint(bs_text *t, uint64_t value) {
  char bytes[10];
  size_t n = 0;
  do {
    bytes[n] = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    value >>= 7;
    n++;
  } while (value > 0);
  bs_text_append(t, bytes, n);
}

static void put_number(bs_text *t, uint32_t field, uint64_t value) {
  put_varint(t, (uint64_t)field << 3 | BS_PB_VARINT);
  put_varint(t, value);
}

static void put_bytes(bs_text *t, uint32_t field, const char *data, size_t size) {
  put_varint(t, (uint64_t)field << 3 | BS_PB_BYTES);
  put_varint(t, size);
  bs_text_append(t, data, size);
}

/* An attribute: `field` is the one of its value, as Chakra's own converters write it. */
static void put_attr(bs_text *node, const char *name, uint32_t field, uint64_t value) {
  bs_text attr = {0};
  put_bytes(&attr, 1, name, strlen(name));
  put_number(&attr, field, value);
  put_bytes(node, 10, attr.data, attr.size);
  node->failed |= attr.failed;
  bs_text_free(&attr);
}

static void put_group(bs_text *node, const char *name) {
  bs_text attr = {0};
  put_bytes(&attr, 1, "pg_name", 7);
  put_bytes(&attr, 29, name, strlen(name));
  put_bytes(node, 10, attr.data, attr.size);
  node->failed |= attr.failed;
  bs_text_free(&attr);
}

enum { INT32 = 7, INT64 = 9, UINT64 = 13, BOOL = 27 };

static void put_attrs(bs_text *t, const bs_et *et, const bs_et_node *n) {
  put_attr(t, "is_cpu_op", BOOL, n->cpu != 0);
  if (n->flops > 0) put_attr(t, "num_ops", INT64, n->flops);
  if (n->kind == BS_ET_COLL) put_attr(t, "comm_type", INT64, n->coll);
  if (n->kind == BS_ET_CALC || n->kind == BS_ET_MEMORY) {
    if (n->bytes > 0) put_attr(t, "tensor_size", UINT64, n->bytes);
  } else {
    put_attr(t, "comm_size", INT64, n->bytes);
  }
  if (n->kind == BS_ET_COLL && n->group != 0) put_group(t, et->groups[n->group].name);
  if (n->kind == BS_ET_SEND || n->kind == BS_ET_RECV) {
    put_attr(t, "comm_src", INT32, n->kind == BS_ET_SEND ? n->rank : n->peer);
    put_attr(t, "comm_dst", INT32, n->kind == BS_ET_SEND ? n->peer : n->rank);
    put_attr(t, "comm_tag", INT32, n->tag);
  }
  if (n->ps != BS_ET_NO_TIME) put_attr(t, "duration_ps", UINT64, n->ps);
}

static void put_node(bs_text *t, const bs_et *et, uint32_t index) {
  static const uint8_t types[BS_ET_KINDS] = {4, 5, 6, 7, 2};
  const bs_et_node *n = &et->nodes[index];
  const uint32_t first = et->first_node[n->rank];
  bs_text needs = {0};
  put_number(t, 1, index - first);
  if (n->name[0] != '\0') put_bytes(t, 2, n->name, strlen(n->name));
  put_number(t, 3, types[n->kind]);
  for (uint64_t i = et->first_need[index]; i < et->first_need[index + 1]; i++)
    put_varint(&needs, et->needs[i].on - first);
  if (needs.size > 0) put_bytes(t, 5, needs.data, needs.size);
  t->failed |= needs.failed;
  bs_text_free(&needs);
  if (n->start > 0) put_number(t, 6, n->start / PS_IN_US);
  if (n->ps != BS_ET_NO_TIME) put_number(t, 7, n->ps / PS_IN_US);
  put_attrs(t, et, n);
}

/* ---- files -------------------------------------------------------------------------------------- */

static void put_rank(bs_text *file, const bs_et *et, uint32_t rank) {
  bs_text message = {0};
  put_bytes(&message, 1, VERSION, strlen(VERSION));
  put_varint(file, message.size);
  bs_text_append(file, message.data, message.size);
  for (uint32_t i = et->first_node[rank]; i < et->first_node[rank + 1] && !message.failed; i++) {
    message.size = 0;
    put_node(&message, et, i);
    put_varint(file, message.size);
    bs_text_append(file, message.data, message.size);
  }
  file->failed |= message.failed;
  bs_text_free(&message);
}

/* Refuses what the format cannot hold. */
static int32_t check(const bs_et *et, bs_error *err) {
  char text[160];
  for (uint32_t i = 0; i < et->n_nodes; i++) {
    bs_et_node_text(et, i, text, sizeof text);
    for (uint64_t k = et->first_need[i]; k < et->first_need[i + 1]; k++)
      if (et->needs[k].start)
        return bs_error_set(err, BS_UNSUPPORTED, "BS-CHAKRA-START",
                            "%s needs the start of another node (irequires): Chakra knows ends alone", text);
    if (et->nodes[i].cpu > 1 || et->nodes[i].nic > 0)
      return bs_error_set(err, BS_UNSUPPORTED, "BS-CHAKRA-CPU",
                          "%s is on cpu %u, nic %u: Chakra knows two processors and one port", text,
                          et->nodes[i].cpu, et->nodes[i].nic);
  }
  return BS_OK;
}

int32_t bs_chakra_write(const bs_et *et, const char *prefix, bs_error *err) {
  const size_t room = strlen(prefix) + 32;
  int32_t rc = check(et, err);
  char *path = malloc(room);
  if (rc == BS_OK && path == NULL) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for a path");
  for (uint32_t r = 0; rc == BS_OK && r < et->n_ranks; r++) {
    bs_text file = {0};
    put_rank(&file, et, r);
    snprintf(path, room, "%s.%u.et", prefix, r);
    const int why = file.failed ? ENOMEM : bs_out_text(path, file.data, file.size);
    bs_text_free(&file);
    if (why != 0)
      rc = bs_error_set(err, BS_IO, "BS-OUT-WRITE", "%.300s cannot be written: %s", path, strerror(why));
  }
  free(path);
  return rc;
}
