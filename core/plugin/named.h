/* SPDX-License-Identifier: MIT
 * named.h - "NAME:key=value,key=value", as the configuration writes an algorithm or a topology with its
 * options, and the values of an algorithm's options. Used by core/world and the lab. */
#ifndef BS_CORE_PLUGIN_NAMED_H
#define BS_CORE_PLUGIN_NAMED_H
#include "blockshock/algorithm.h"
#include "blockshock/blockshock.h"

enum { BS_NAMED_MAX = 16 };

/* Zero-initialise. */
typedef struct bs_named {
  char *text; /* all that the others point into */
  const char *name;
  uint32_t n;
  const char *keys[BS_NAMED_MAX];
  const char *values[BS_NAMED_MAX];
} bs_named;

/* Takes a copy of the text apart. BS_CONFIG says what is wrong in it. Free with bs_named_free. */
BS_API int32_t bs_named_read(const char *text, bs_named *out_named, bs_error *err);
BS_API void bs_named_free(bs_named *named);
/* The values of all options of an algorithm: given ones, and the defaults of the others. STRINGs point into
 * `given` and the declarations. BS_CONFIG for an unknown key, with the nearest, and for a wrong value. */
BS_API int32_t bs_algorithm_options(const bs_algorithm *algorithm, const bs_named *given,
                                    bs_value out_values[BS_ALGORITHM_MAX_OPTIONS], bs_error *err);
/* How many options it has. */
BS_API uint32_t bs_algorithm_option_count(const bs_algorithm *algorithm);
/* The name of which `name` is an older one, of a kind of thing (bs_kind), by the notes of the plugins that
 * were found; no plugin is opened. Returns 0, and leaves out_name, where no note has it. Thread-safe. */
BS_API int bs_named_newer(const bs_context *context, uint32_t kind, const char *name, char *out_name,
                          size_t size);
#endif
