/* SPDX-License-Identifier: MIT
 *
 * plugin.h - everything a plugin includes: the SDK headers, BS_PLUGIN_DEFINE and small helpers.
 *
 *   static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {...}
 *   BS_PLUGIN_DEFINE("acme", "0.1.0", "what it does", 1u << BS_KIND_METHOD, "method:acme\n", activate, NULL)
 *
 * Compile with -shared -fPIC -fvisibility=hidden (pkg-config --cflags blockshock-plugin) and name the
 * file bs_acme.so. The same source links statically into the library when BS_STATIC_QUERY is defined
 * to another name for the query function.
 *
 * Units: those of the headers that it includes.
 * Ownership: the state that activate returns belongs to the plugin until deactivate. The helpers keep no
 * pointer, but for bs_generator_under.
 * Threads: the helpers have no state, and may be called from any thread.
 * Errors: a plugin reports an error by `return bs_fail(err, code, id, format, ...)`, and adds a hint by
 * bs_fail_hint. A plugin prints nothing and never ends the process.
 */
#ifndef BLOCKSHOCK_PLUGIN_H
#define BLOCKSHOCK_PLUGIN_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "algorithm.h"
#include "backend.h"
#include "comm.h"
#include "importer.h"
#include "method.h"
#include "names.h"
#include "topology.h"
#include "workload.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The sanitizer that this file is compiled with: enum bs_sanitizer. */
#if defined(__SANITIZE_THREAD__)
#define BS_THIS_SANITIZER BS_SAN_THREAD
#elif defined(__SANITIZE_ADDRESS__)
#define BS_THIS_SANITIZER BS_SAN_ADDRESS
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BS_THIS_SANITIZER BS_SAN_THREAD
#elif __has_feature(address_sanitizer)
#define BS_THIS_SANITIZER BS_SAN_ADDRESS
#endif
#endif
#ifndef BS_THIS_SANITIZER
#define BS_THIS_SANITIZER BS_SAN_NONE
#endif

/* The oldest minor of a host that serves: that of these headers, unless the plugin says before including this
 * that it uses nothing that came later than another, or looks first (share/doc/blockshock/abi.md,
 * "Versions"). */
#ifndef BS_PLUGIN_MIN_HOST_MINOR
#define BS_PLUGIN_MIN_HOST_MINOR BS_ABI_MINOR
#endif

#ifdef BS_STATIC_QUERY
#define BS_PLUGIN_QUERY_NAME BS_STATIC_QUERY /* a static built-in: no note, other function name */
#define BS_PLUGIN_NOTE_(id_, version_, summary_, kinds_, things_)
#else
#define BS_PLUGIN_QUERY_NAME bs_plugin_query_0
#define BS_PLUGIN_NOTE_(id_, version_, summary_, kinds_, things_)                          \
  static const struct {                                                                    \
    uint32_t namesz, descsz, type;                                                         \
    char name[12];                                                                         \
    bs_note note;                                                                          \
  } bs_plugin_note __attribute__((section(".note.blockshock"), used, aligned(4))) = {      \
      sizeof(BS_NOTE_OWNER),                                                               \
      (uint32_t)sizeof(bs_note),                                                           \
      BS_NOTE_TYPE,                                                                        \
      BS_NOTE_OWNER,                                                                       \
      {(uint32_t)sizeof(bs_note), BS_NOTE_MAGIC, BS_ABI_VERSION, BS_PLUGIN_MIN_HOST_MINOR, \
       BS_THIS_SANITIZER, (kinds_), BS_ABI_LEDGER_HASH, id_, version_, summary_, things_}};
#endif

#ifdef __cplusplus
#define BS_PLUGIN_LINKAGE_ extern "C"
#else
#define BS_PLUGIN_LINKAGE_
#endif

/* Defines the note and the query function. `things_` is the newline-separated list of abi.h. */
#define BS_PLUGIN_DEFINE(id_, version_, summary_, kinds_, things_, activate_, deactivate_)     \
  BS_PLUGIN_NOTE_(id_, version_, summary_, kinds_, things_)                                    \
  BS_PLUGIN_LINKAGE_ BS_EXPORT const bs_plugin_desc *BS_PLUGIN_QUERY_NAME(uint32_t host_abi,   \
                                                                          uint32_t reserved);  \
  BS_EXPORT const bs_plugin_desc *BS_PLUGIN_QUERY_NAME(uint32_t host_abi, uint32_t reserved) { \
    static const bs_plugin_desc bs_the_desc = {(uint32_t)sizeof(bs_plugin_desc),               \
                                               BS_ABI_VERSION,                                 \
                                               BS_PLUGIN_MIN_HOST_MINOR,                       \
                                               0,                                              \
                                               BS_THIS_SANITIZER,                              \
                                               (kinds_),                                       \
                                               id_,                                            \
                                               version_,                                       \
                                               "",                                             \
                                               summary_,                                       \
                                               activate_,                                      \
                                               deactivate_};                                   \
    (void)host_abi;                                                                            \
    (void)reserved;                                                                            \
    return &bs_the_desc;                                                                       \
  }

/* Declares a bs_src_loc `name` of this line, for register_thing. */
#define BS_HERE_LOC(name) static const bs_src_loc name = {__FILE__, (uint32_t)__LINE__, 0u}

/* Fills err, which may be NULL, and returns code:
 * `return bs_fail(err, BS_UNSUPPORTED, "BS-ACME-SHAPE", "K=%d ...", k);` */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5), unused))
#endif
static int32_t
bs_fail(bs_error *err, int32_t code, const char *id, const char *fmt, ...) {
  if (err != NULL) {
    va_list ap;
    memset(err, 0, sizeof *err);
    err->struct_size = (uint32_t)sizeof *err;
    err->code = code;
    err->rank = -1;
    snprintf(err->id, sizeof err->id, "%s", id);
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
  }
  return code;
}

/* Adds a hint to an error that bs_fail has filled, and returns its code. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3), unused))
#endif
static int32_t
bs_fail_hint(bs_error *err, const char *fmt, ...) {
  if (err == NULL) return BS_INTERNAL;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(err->hint, sizeof err->hint, fmt, ap);
  va_end(ap);
  return err->code;
}

/* Copies the plugin's `value` of `size` bytes into a struct of the host, `out`, which has its own
 * struct_size. It writes no byte past the host's struct, sets the bytes that only the host's has to zero, and
 * keeps struct_size (share/doc/blockshock/abi.md, "Structs that one side fills"). `bs_out_copy(out, &mine,
 * sizeof mine);`
 */
#if defined(__GNUC__)
__attribute__((unused))
#endif
static void
bs_out_copy(void *out, const void *value, size_t size) {
  const size_t head = sizeof(uint32_t); /* struct_size */
  uint32_t room;
  memcpy(&room, out, head);
  if (room <= head) return;
  if (room < size) size = room;
  memset((char *)out + head, 0, room - head);
  if (size > head) memcpy((char *)out + head, (const char *)value + head, size - head);
}

/* Returns how a source is made. NULL: it is not known, as of a view that has taken over another source's
 * fields. */
#if defined(__GNUC__)
__attribute__((unused))
#endif
static const bs_generator *
bs_generator_of(const bs_source *source) {
  const bs_generator *g = source->generator;
  return g != NULL && g->ctx == source->ctx ? g : NULL;
}

/* Sets the generator of a view whose `ctx` shows all columns of `inner` from row `first_row` on. `made` keeps
 * it, and must live as long as the view. */
#if defined(__GNUC__)
__attribute__((unused))
#endif
static void
bs_generator_under(const bs_source *inner, int64_t first_row, const void *ctx, bs_generator *made,
                   bs_source *view) {
  const bs_generator *g = bs_generator_of(inner);
  view->generator = NULL;
  if (g == NULL) return;
  *made = *g;
  made->ctx = ctx;
  made->first += (uint64_t)first_row * g->line;
  view->generator = made;
}

/* Returns the first element of a block of a collective's vector, 0 <= block <= world_size. The block ends
 * where the next one begins. Even blocks begin at block * count / world_size, rounded down. */
#if defined(__GNUC__)
__attribute__((unused))
#endif
static uint64_t
bs_coll_first(const bs_coll_shape *shape, uint32_t block) {
  const uint64_t p = shape->world_size;
  if (shape->firsts != NULL) return shape->firsts[block];
  return shape->count / p * block + shape->count % p * block / p;
}

/* Reads a knob's value from `settings` ("keys=128;exp=fast", as bs_op_query.knobs; NULL: empty) and
 * returns 1. Returns 0, and value "", where the knob is missing or "auto". */
#if defined(__GNUC__)
__attribute__((unused))
#endif
static int
bs_knob_find(const char *settings, const char *name, char *value, size_t size) {
  const size_t length = strlen(name);
  if (size > 0) value[0] = '\0';
  for (const char *at = settings; at != NULL && *at != '\0';) {
    const size_t whole = strcspn(at, ";");
    if (whole > length && strncmp(at, name, length) == 0 && at[length] == '=') {
      const int given = !(whole - length == 5 && strncmp(at + length + 1, "auto", 4) == 0);
      if (given && size > 0) snprintf(value, size, "%.*s", (int)(whole - length - 1), at + length + 1);
      return given;
    }
    at += whole + (at[whole] == ';');
  }
  return 0;
}

/* Returns the value of a knob that is a number; `fallback` where the knob is missing or "auto". */
#if defined(__GNUC__)
__attribute__((unused))
#endif
static int64_t
bs_knob_int(const char *settings, const char *name, int64_t fallback) {
  char value[17]; /* legal numbers have at most 15 digits */
  int64_t number = 0;
  if (!bs_knob_find(settings, name, value, sizeof value)) return fallback;
  for (const char *c = value; *c != '\0'; c++) {
    if (*c < '0' || *c > '9') return fallback;
    number = 10 * number + (*c - '0');
  }
  return number;
}

/* bs_echo_begin clears an echo; bs_echo_word adds a knob to it. bs_op_impl.echo fills a local one and returns
 * it by bs_out_copy(out_echo, &mine, sizeof mine). */
#if defined(__GNUC__)
__attribute__((unused))
#endif
static void
bs_echo_begin(bs_op_echo *echo) {
  memset(echo, 0, sizeof *echo);
  echo->struct_size = (uint32_t)sizeof *echo;
  echo->registers = -1;
  echo->shared_bytes = -1;
  echo->spill_bytes = -1;
}
/* Adds a knob to an echo: its name, and the value in use as a word. */
#if defined(__GNUC__)
__attribute__((unused))
#endif
static void
bs_echo_word(bs_op_echo *echo, const char *name, const char *value) {
  const size_t used = strlen(echo->knobs);
  snprintf(echo->knobs + used, sizeof echo->knobs - used, "%s%s=%s", used > 0 ? ";" : "", name, value);
}
/* Adds a knob whose value is a number. */
#if defined(__GNUC__)
__attribute__((unused))
#endif
static void
bs_echo_int(bs_op_echo *echo, const char *name, int64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%lld", (long long)value);
  bs_echo_word(echo, name, text);
}

/* Makes the dense row-major descriptor of a matrix. */
#if defined(__GNUC__)
__attribute__((unused))
#endif
static bs_tensor_desc
bs_desc_2d(uint32_t dtype, int64_t rows, int64_t cols) {
  bs_tensor_desc d;
  memset(&d, 0, sizeof d);
  d.struct_size = (uint32_t)sizeof d;
  d.dtype = dtype;
  d.rank = 2;
  d.dims[0] = rows;
  d.dims[1] = cols;
  d.strides[0] = cols;
  d.strides[1] = 1;
  return d;
}

#ifdef __cplusplus
}
#endif
#endif
