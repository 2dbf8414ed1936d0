/* SPDX-License-Identifier: MIT
 * chakra.c - reading Chakra traces (chakra.h): messages by pb.h out of a mapped file. Numbers of nodes are
 * the file's own; they become indices by a sorted list of the rank's nodes. */
#include "formats/chakra.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "formats/map.h"
#include "formats/pb.h"

/* Field numbers of a Node and an AttributeProto, and numbers of types. */
enum { NODE_ID = 1, NODE_NAME, NODE_TYPE, NODE_CTRL_DEPS, NODE_DATA_DEPS, NODE_START, NODE_DURATION };
enum { NODE_INPUTS = 8, NODE_OUTPUTS = 9, NODE_ATTR = 10 };
enum { TYPE_METADATA = 1, TYPE_LOAD, TYPE_STORE, TYPE_COMP, TYPE_SEND, TYPE_RECV, TYPE_COLL, TYPES };
enum { ATTR_NAME = 1, ATTR_DOUBLE = 3, ATTR_FLOAT = 5, ATTR_INT32 = 7, ATTR_UINT64 = 13, ATTR_SINT32 = 15 };
enum { ATTR_SINT64 = 17, ATTR_FIXED32 = 19, ATTR_SFIXED64 = 25, ATTR_BOOL = 27, ATTR_STRING = 29 };
#define PS_IN_US UINT64_C(1000000)

/* The peers of a node. They are kept until its kind is known. */
typedef struct peers {
  uint64_t src, dst;
  int has_src, has_dst;
} peers;

/* A need of the rank, by numbers of the file. */
typedef struct named_need {
  uint32_t node;
  uint64_t on;
} named_need;

typedef struct by_id {
  uint64_t id;
  uint32_t index;
} by_id;

typedef struct reading {
  bs_et *et;
  uint32_t rank, first; /* the rank's first node */
  named_need *needs;
  size_t n_needs, room;
} reading;

static int32_t bad(const bs_pb_field *f, const char *id, const char *what, uint64_t value, bs_error *err) {
  return bs_error_set(err, BS_INPUT, id, "at byte %" PRIu64 ": %s: %" PRIu64, f->offset, what, value);
}

/* ---- attributes --------------------------------------------------------------------------------- */

static uint64_t unzigzag(uint64_t value) {
  return (value >> 1) ^ (0 - (value & 1));
}

/* The whole number of a real one; UINT64_MAX where the real one is negative, too large or NaN. */
static uint64_t whole(double value) {
  return value >= 0 && value < 9e18 ? (uint64_t)(value + 0.5) : UINT64_MAX;
}

/* The number that a field of an attribute holds. 0: it holds none. */
static int number_of(const bs_pb_field *f, uint64_t *out) {
  double wide;
  float narrow;
  const uint32_t low = (uint32_t)f->value;
  *out = f->value;
  if (f->number == ATTR_DOUBLE && f->wire == BS_PB_FIXED64) {
    memcpy(&wide, &f->value, sizeof wide);
    *out = whole(wide);
    return 1;
  }
  if (f->number == ATTR_FLOAT && f->wire == BS_PB_FIXED32) {
    memcpy(&narrow, &low, sizeof narrow);
    *out = whole((double)narrow);
    return 1;
  }
  if ((f->number == ATTR_SINT32 || f->number == ATTR_SINT64) && f->wire == BS_PB_VARINT) {
    *out = unzigzag(f->value);
    return 1;
  }
  if (f->wire == BS_PB_VARINT)
    return (f->number >= ATTR_INT32 && f->number <= ATTR_UINT64 && f->number % 2 == 1) ||
           f->number == ATTR_BOOL;
  return (f->wire == BS_PB_FIXED32 || f->wire == BS_PB_FIXED64) && f->number >= ATTR_FIXED32 &&
         f->number <= ATTR_SFIXED64;
}

static int is(const bs_pb *name, const char *text) {
  const uint64_t size = strlen(text);
  return bs_pb_size(name) == size && memcmp(name->at, text, size) == 0;
}

static int set_number(bs_et_node *n, peers *p, const bs_pb *name, uint64_t value) {
  if (is(name, "is_cpu_op"))
    n->cpu = value != 0;
  else if (is(name, "num_ops"))
    n->flops = value;
  else if (is(name, "tensor_size") || is(name, "comm_size"))
    n->bytes = value;
  else if (is(name, "comm_type"))
    n->coll = value < BS_ET_COLLS ? (uint32_t)value : BS_ET_COLLS;
  else if (is(name, "comm_tag"))
    n->tag = (uint32_t)value;
  else if (is(name, "duration_ps"))
    n->ps = value;
  else if (is(name, "comm_src")) {
    p->src = value;
    p->has_src = 1;
  } else if (is(name, "comm_dst")) {
    p->dst = value;
    p->has_dst = 1;
  } else
    return 0;
  return 1;
}

static int32_t read_attr(reading *r, bs_pb attr, bs_et_node *n, peers *p, bs_error *err) {
  bs_pb_field f, value = {0};
  bs_pb name = {0};
  uint64_t number = 0;
  int32_t rc;
  while ((rc = bs_pb_next(&attr, &f, err)) == BS_OK && f.number != 0) {
    if (f.number == ATTR_NAME && f.wire == BS_PB_BYTES)
      name = f.body;
    else if (f.number > 2)
      value = f;
  }
  if (rc != BS_OK) return rc;
  if (name.at == NULL || value.number == 0) {
    r->et->unknown++;
    return BS_OK;
  }
  if (value.number == ATTR_STRING && value.wire == BS_PB_BYTES && is(&name, "pg_name"))
    return bs_et_group_of(r->et, (const char *)value.body.at, bs_pb_size(&value.body), &n->group, err);
  if (!number_of(&value, &number) || !set_number(n, p, &name, number)) r->et->unknown++;
  return BS_OK;
}

/* ---- nodes -------------------------------------------------------------------------------------- */

static int32_t add_need(reading *r, uint64_t on, bs_error *err) {
  if (r->n_needs == r->room) {
    const size_t room = r->room == 0 ? 64 : 2 * r->room;
    named_need *needs = room > BS_ET_MAX_NEEDS ? NULL : realloc(r->needs, room * sizeof *needs);
    if (needs == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for the needs of a rank");
    r->needs = needs;
    r->room = room;
  }
  r->needs[r->n_needs++] = (named_need){r->et->n_nodes, on};
  return BS_OK;
}

/* A list of numbers, packed or one at a time. */
static int32_t read_deps(reading *r, const bs_pb_field *f, bs_error *err) {
  bs_pb list = f->body;
  uint64_t on = 0;
  int32_t rc = BS_OK;
  if (f->wire == BS_PB_VARINT) return add_need(r, f->value, err);
  rc = bs_pb_want(f, BS_PB_BYTES, err);
  while (rc == BS_OK && bs_pb_size(&list) > 0) {
    if (!bs_pb_varint(&list, &on))
      return bad(f, "BS-CHAKRA-NODE", "a list of needs is cut off after", on, err);
    rc = add_need(r, on, err);
  }
  return rc;
}

static int32_t set_kind(bs_et_node *n, uint64_t type, const peers *p, const bs_pb_field *f, bs_error *err) {
  static const uint8_t kinds[TYPES] = {[TYPE_LOAD] = BS_ET_MEMORY,
                                       [TYPE_STORE] = BS_ET_MEMORY,
                                       [TYPE_SEND] = BS_ET_SEND,
                                       [TYPE_RECV] = BS_ET_RECV,
                                       [TYPE_COLL] = BS_ET_COLL};
  if (type >= TYPES) return bad(f, "BS-CHAKRA-NODE", "a node of an unknown type", type, err);
  n->kind = kinds[type];
  if (type <= TYPE_METADATA) n->ps = 0; /* says something about the trace, and does nothing */
  if (n->kind == BS_ET_SEND || n->kind == BS_ET_RECV) {
    const uint64_t own = n->kind == BS_ET_SEND ? p->src : p->dst,
                   peer = n->kind == BS_ET_SEND ? p->dst : p->src;
    if (!(n->kind == BS_ET_SEND ? p->has_dst : p->has_src) || peer >= BS_ET_MAX_RANKS)
      return bad(f, "BS-CHAKRA-PEER", "a message without a rank of its other end, in node", n->id, err);
    if ((n->kind == BS_ET_SEND ? p->has_src : p->has_dst) && own != n->rank)
      return bad(f, "BS-CHAKRA-PEER", "a node of another rank in the file of this rank", own, err);
    n->peer = (uint32_t)peer;
  }
  if (n->kind == BS_ET_COLL && n->coll >= BS_ET_COLLS)
    return bad(f, "BS-CHAKRA-COLL", "an unknown comm_type in node", n->id, err);
  if (n->kind != BS_ET_COLL) n->group = n->coll = 0;
  return BS_OK;
}

static int32_t set_time(uint64_t us, uint64_t *out_ps, const bs_pb_field *f, bs_error *err) {
  if (us > BS_ET_MAX_SIZE / PS_IN_US) return bad(f, "BS-CHAKRA-TIME", "too many us", us, err);
  *out_ps = us * PS_IN_US;
  return BS_OK;
}

static int32_t read_field(reading *r, const bs_pb_field *f, bs_et_node *n, peers *p, uint64_t *type,
                          bs_error *err) {
  uint64_t ps = 0;
  int32_t rc = BS_OK;
  switch (f->number) {
    case NODE_ID:
      n->id = f->value;
      return bs_pb_want(f, BS_PB_VARINT, err);
    case NODE_TYPE:
      *type = f->value;
      return bs_pb_want(f, BS_PB_VARINT, err);
    case NODE_NAME:
      rc = bs_pb_want(f, BS_PB_BYTES, err);
      if (rc == BS_OK) n->name = bs_et_text(r->et, (const char *)f->body.at, bs_pb_size(&f->body));
      return rc != BS_OK || n->name != NULL ? rc : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory");
    case NODE_CTRL_DEPS:
      r->et->controls++;
      return BS_OK;
    case NODE_DATA_DEPS:
      return read_deps(r, f, err);
    case NODE_START:
      rc = bs_pb_want(f, BS_PB_VARINT, err);
      return rc == BS_OK ? set_time(f->value, &n->start, f, err) : rc;
    case NODE_DURATION:
      rc = bs_pb_want(f, BS_PB_VARINT, err);
      if (rc == BS_OK) rc = set_time(f->value, &ps, f, err);
      if (rc == BS_OK && n->ps == BS_ET_NO_TIME) n->ps = ps; /* not over a duration_ps */
      return rc;
    case NODE_ATTR:
      rc = bs_pb_want(f, BS_PB_BYTES, err);
      return rc == BS_OK ? read_attr(r, f->body, n, p, err) : rc;
    case NODE_INPUTS:
    case NODE_OUTPUTS:
      return BS_OK;
    default:
      r->et->unknown++;
      return BS_OK;
  }
}

static int32_t read_node(reading *r, bs_pb message, bs_error *err) {
  bs_et_node n = {.name = "", .rank = r->rank, .ps = BS_ET_NO_TIME};
  bs_pb_field f = {.offset = bs_pb_offset(&message)};
  const bs_pb_field begin = f;
  peers p = {0};
  uint64_t type = 0;
  uint32_t index = 0;
  int32_t rc;
  while ((rc = bs_pb_next(&message, &f, err)) == BS_OK && f.number != 0) {
    rc = read_field(r, &f, &n, &p, &type, err);
    if (rc != BS_OK) return rc;
  }
  if (rc == BS_OK) rc = set_kind(&n, type, &p, &begin, err);
  return rc == BS_OK ? bs_et_add(r->et, &n, &index, err) : rc;
}

/* ---- needs -------------------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b) {
  const by_id *x = a, *y = b;
  if (x->id != y->id) return x->id < y->id ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

static int32_t resolve(reading *r, bs_error *err) {
  const size_t n = r->et->n_nodes - r->first;
  by_id *ids = malloc((n + 1) * sizeof *ids);
  int32_t rc = ids != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for %zu nodes", n);
  for (size_t i = 0; rc == BS_OK && i < n; i++)
    ids[i] = (by_id){r->et->nodes[r->first + i].id, r->first + (uint32_t)i};
  if (rc == BS_OK) qsort(ids, n, sizeof *ids, compare_ids);
  for (size_t i = 1; rc == BS_OK && i < n; i++)
    if (ids[i].id == ids[i - 1].id)
      rc = bs_error_set(err, BS_INPUT, "BS-CHAKRA-NODE", "two nodes have the number %" PRIu64, ids[i].id);
  for (size_t i = 0; rc == BS_OK && i < r->n_needs; i++) {
    const by_id key = {.id = r->needs[i].on};
    size_t low = 0, high = n;
    while (low < high) {
      const size_t mid = low + (high - low) / 2;
      if (ids[mid].id < key.id)
        low = mid + 1;
      else
        high = mid;
    }
    if (low < n && ids[low].id == key.id)
      rc = bs_et_need_add(r->et, r->needs[i].node, ids[low].index, 0, err);
    else
      rc = bs_error_set(err, BS_INPUT, "BS-CHAKRA-NEED",
                        "node %" PRIu64 " needs node %" PRIu64 ", which the file does not have",
                        r->et->nodes[r->needs[i].node].id, key.id);
  }
  free(ids);
  return rc;
}

/* ---- files -------------------------------------------------------------------------------------- */

/* A GlobalMetadata has a version and attributes; a Node has more. */
static int32_t check_head(bs_pb message, bs_error *err) {
  uint64_t counts[NODE_ATTR + 1], others = 0;
  const int32_t rc = bs_pb_count(message, counts, NODE_ATTR + 1, err);
  for (int i = 3; rc == BS_OK && i <= NODE_ATTR; i++) others += counts[i];
  if (rc != BS_OK || others == 0) return rc;
  return bs_error_set(err, BS_INPUT, "BS-CHAKRA-HEAD",
                      "the first message is a node: GlobalMetadata is missing");
}

/* Reads the messages of a file, each after its length. */
static int32_t read_messages(reading *r, bs_pb file, bs_error *err) {
  int32_t rc = BS_OK;
  for (int first = 1; rc == BS_OK && bs_pb_size(&file) > 0; first = 0) {
    uint64_t length = 0;
    const uint64_t at = bs_pb_offset(&file);
    if (!bs_pb_varint(&file, &length) || length > bs_pb_size(&file))
      return bs_error_set(err, BS_INPUT, "BS-CHAKRA-LENGTH",
                          "at byte %" PRIu64 ": a message of %" PRIu64 " bytes reaches past the file", at,
                          length);
    bs_pb message = file;
    file.at += length;
    message.end = file.at;
    if (first) {
      rc = check_head(message, err);
    } else {
      rc = read_node(r, message, err);
    }
  }
  return rc;
}

int32_t bs_chakra_read_rank(bs_et *et, const char *path, uint32_t rank, bs_error *err) {
  bs_map map;
  reading r = {.et = et, .rank = rank, .first = et->n_nodes};
  int32_t rc = bs_map_open(path, "BS-CHAKRA-OPEN", &map, err);
  if (rc != BS_OK) return rc;
  rc = bs_map_guard(&map, path, err);
  if (rc == BS_OK && map.bytes == 0) rc = bs_error_set(err, BS_INPUT, "BS-CHAKRA-HEAD", "the file is empty");
  if (rc == BS_OK) {
    const unsigned char *data = map.data;
    rc = read_messages(&r, (bs_pb){data, data + map.bytes, data}, err);
    if (rc == BS_OK) rc = resolve(&r, err);
    if (rc == BS_OK) rc = bs_map_unchanged(&map, path, err);
  }
  if (rc != BS_OK && err != NULL && err->where[0] == '\0') bs_error_where(err, "%s", path);
  free(r.needs);
  bs_map_close(&map);
  return rc;
}
