/* SPDX-License-Identifier: MIT
 * layer.h - shared parts of the checks of methods (method.c): their context, backend, options, masks and
 * worlds. */
#ifndef BS_KIT_LAYER_H
#define BS_KIT_LAYER_H
#include "kit/kit.h"
#include "kit/method_fixture.h"

/* "ref", or the value of --backend. */
const char *kit_method_backend(void);
/* A context with the plugin. Fails the check when the backend is not there. */
bs_context *kit_method_context(void);
/* method.<key> settings of the command line. */
void kit_method_options(bs_layer_spec *spec);
/* The number of ranks that the method names as its usual one. */
uint32_t kit_method_world(const bs_method *m);
/* Mask number i, NULL for the method's default; *out_skip: the method does not support masks of this kind. */
enum { KIT_MASKS = 7 };
const bs_mask *kit_method_mask(const bs_method *m, uint32_t i, bs_mask *room, int *out_skip);
/* Does every rank propose it? A refusal must give the reason; an accepted proposal must be built and run. */
int kit_method_proposed(bs_context *context, const mf_case *c, bs_proposal *first, bs_error *why);
/* One layer built, run and freed in a world of the usual size; whether it may fail is for other checks. */
void kit_method_layer(bs_context *context, const bs_method *m);
#endif
