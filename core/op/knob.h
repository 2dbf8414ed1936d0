/* SPDX-License-Identifier: MIT
 * knob.h - declared knobs of implementations and methods: their value sets, settings as text ("keys=128;
 * exp=fast"), and whether a plan's echo shows the settings it was given. Pure. The public half is in
 * blockshock.h. */
#ifndef BS_CORE_OP_KNOB_H
#define BS_CORE_OP_KNOB_H
#include "blockshock/blockshock.h"

enum { BS_KNOB_VALUE = 64 }; /* letters of a value, the end included */

/* Checks the knobs that a plugin declares: names, value sets, default values. BS_PLUGIN BS-PLG-KNOB. */
BS_API int32_t bs_knobs_declared(const bs_knob *const *knobs, uint32_t n_knobs, const char *what,
                                 bs_error *err);
/* Is it a value of the set, or "auto"? */
BS_API int bs_knob_legal(const bs_knob *knob, const char *value);
BS_API int bs_knob_has(const bs_knob *knob, const char *value); /* the set alone */
/* Sets BS_CONFIG `id` for an illegal value; the text lists the legal values and the nearest one. */
BS_API int32_t bs_knob_refuse(const bs_knob *knob, const char *id, const char *what, const char *value,
                              bs_error *err);
/* Is `key` one of an option_docs text ("key=default: text\n"...)? */
BS_API int bs_option_listed(const char *option_docs, const char *key);
/* Options of a method whose values it declares as a set: BS_CONFIG BS-METHOD-OPTION for one outside. */
BS_API int32_t bs_method_check_options(const bs_method *method, uint32_t n, const char *const *keys,
                                       const char *const *values, bs_error *err);
/* The value of a knob in settings: 1; 0 when they do not have it. NULL settings have none. */
BS_API int bs_knob_said(const char *settings, const char *name, char value[BS_KNOB_VALUE]);
/* Does the echo name every knob, and with the given value those that `given` (NULL: none) sets?
 * BS_PLUGIN BS-OP-KNOB-ECHO. */
int32_t bs_knobs_echoed(const bs_op_impl *impl, const char *given, const bs_op_echo *echo, bs_error *err);
/* The part of the echo that tells binaries apart: "tile=64;stages=3"; "" when no knob has BS_KNOB_BUILD. */
void bs_knobs_of_build(const bs_op_impl *impl, const bs_op_echo *echo, char *out, size_t size);
#endif
