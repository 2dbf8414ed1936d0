/* SPDX-License-Identifier: MIT
 * onnx_parse.h - inside the ONNX reader (onnx*.c): what a parse carries, and the parsers of one message each.
 * Each message is walked twice: once to count, once to fill lists of exactly that length. */
#ifndef BS_FORMATS_ONNX_PARSE_H
#define BS_FORMATS_ONNX_PARSE_H
#include "formats/arena.h"
#include "formats/map.h"
#include "formats/names.h"
#include "formats/onnx.h"
#include "formats/pb.h"

/* One file of external data. */
typedef struct bs_onnx_file {
  bs_span location;
  bs_map map;
} bs_onnx_file;

struct bs_onnx_store {
  bs_arena arena;
  bs_map map;   /* of the model; closed when it came from memory */
  char *path;   /* as given, for messages */
  char *folder; /* of external data; NULL refuses it */
  int folder_fd;
  bs_onnx_file **files;
  uint32_t n_files, capacity;
  bs_names by_location;
};

/* A graph that is known of and not yet read. */
typedef struct bs_onnx_pending {
  bs_onnx_graph graph;
  bs_pb body;
  struct bs_onnx_pending *next;
} bs_onnx_pending;

typedef struct bs_onnx_reader {
  struct bs_onnx_store *store;
  uint64_t items;
  bs_onnx_pending *first, **last; /* the queue of graphs */
} bs_onnx_reader;

/* Hand each field of a message to `each`, which fills `record`. */
typedef int32_t (*bs_onnx_each)(bs_onnx_reader *r, void *record, const bs_pb_field *field, bs_error *err);
int32_t bs_onnx_fields(bs_onnx_reader *r, bs_pb message, bs_onnx_each each, void *record, bs_error *err);
/* A zero-filled list of `count` structs, of which each takes at least `least` bytes of `message`. */
int32_t bs_onnx_list(bs_onnx_reader *r, const bs_pb *message, uint64_t count, uint64_t least, uint64_t bytes,
                     void *out_list, bs_error *err);
/* A text of the file; a name has a length of at most BS_ONNX_MAX_NAME and no control bytes. */
int32_t bs_onnx_span(const bs_pb_field *field, bs_span *out, bs_error *err);
int32_t bs_onnx_name(const bs_pb_field *field, bs_span *out, bs_error *err);
/* A domain: a name, "ai.onnx" being the empty one. */
int32_t bs_onnx_domain(const bs_pb_field *field, bs_span *out, bs_error *err);

/* Numbers of a repeated field, packed or not. wire: of one number. */
int32_t bs_onnx_count_numbers(bs_pb message, uint32_t field, uint32_t wire, uint64_t *out_count,
                              bs_error *err);
/* Into `out`, `width` little-endian bytes each; BS-ONNX-VALUE when a number does not fit in them. */
int32_t bs_onnx_read_numbers(bs_pb message, uint32_t field, uint32_t wire, uint32_t width, void *out,
                             bs_error *err);

int32_t bs_onnx_read_tensor(bs_onnx_reader *r, bs_pb body, uint64_t offset, bs_onnx_tensor *out,
                            bs_error *err);
int32_t bs_onnx_read_value(bs_onnx_reader *r, bs_pb body, bs_onnx_value *out, bs_error *err);
int32_t bs_onnx_read_attr(bs_onnx_reader *r, bs_pb body, uint32_t depth, bs_onnx_attr *out, bs_error *err);
/* Put a graph into the queue. */
int32_t bs_onnx_queue_graph(bs_onnx_reader *r, bs_pb body, uint32_t depth, bs_onnx_graph **out_graph,
                            bs_error *err);
/* The bytes of a tensor in a separate file. `entries` holds its `external_data` fields. */
int32_t bs_onnx_external(bs_onnx_reader *r, bs_pb message, bs_onnx_tensor *tensor, bs_error *err);
/* Numbers of no item: data of a tensor or attribute. */
int32_t bs_onnx_bytes(bs_onnx_reader *r, uint64_t count, uint64_t bytes, void *out, bs_error *err);

int32_t bs_onnx_store_new(const char *path, const char *folder, struct bs_onnx_store **out, bs_error *err);
void bs_onnx_store_free(struct bs_onnx_store *store);
#endif
