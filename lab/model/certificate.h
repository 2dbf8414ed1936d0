/* SPDX-License-Identifier: MIT
 * certificate.h - the file that `model check --with repro=tokens -o json` writes: what the outputs of a model
 * depend on, and the digests of its outputs. It is no signature: who runs it again has a proof. */
#ifndef BS_LAB_MODEL_CERTIFICATE_H
#define BS_LAB_MODEL_CERTIFICATE_H
#include "lab/model/model.h"

/* 1: a file begins as a certificate does, or its name ends in .json. */
int bs_certificate_is(const char *path);
/* Reads a certificate, and checks all fields that the functions below and bs_model_repro_against read. The
 * caller frees *out. BS_INPUT names the field. */
int32_t bs_certificate_read(const char *path, json_t **out, bs_error *err);

/* How a model was opened. words: what the request points to; the caller frees it after the request. */
typedef struct bs_certificate_words {
  char **dims;
  const char **passes;
  size_t n_dims;
  bs_model_ranks ranks;
} bs_certificate_words;
/* {backend, cache_tokens, cache_dtype, seed, weights, activations, passes_off, dims}: of a request, and of
 * the session that it opened. NULL: out of memory. */
json_t *bs_certificate_asked(const bs_model_request *request, const bs_model *model);
/* Sets those in a request that has none of them. A backend in *io stays. */
int32_t bs_certificate_ask(const json_t *certificate, bs_model_request *io, bs_certificate_words *words,
                           bs_error *err);
void bs_certificate_words_free(bs_certificate_words *words);

/* Adds to an object `files`: [{name, bytes, sha256}] of the open model, names from its folder on; and
 * `made_constants`: {count, sha256, named: {name: 16 digits}} of the constants with floats that lie in none
 * of them, such as rotary tables: import computes them with the C library. */
int32_t bs_certificate_add_files(const bs_model *model, json_t *to, bs_error *err);
/* Adds `inputs`: [{name, dtype, shape, made, sha256}] of the session, once they are set. */
int32_t bs_certificate_add_inputs(const bs_model *model, json_t *to, bs_error *err);
/* Adds `build`: {version, library_build_id, compiler, libc, plugins: {id: sha256}}, and `machine`: {cpu,
 * isa}. */
int32_t bs_certificate_add_machine(bs_context *context, json_t *to, bs_error *err);
/* Adds machine.tables, those that the cells name. */
int32_t bs_certificate_add_tables(json_t *to, bs_error *err);

/* Compares what bs_certificate_add_files added to `now` with a certificate. BS_INPUT: the file that differs,
 * or that one of them lacks, or the made constant. */
int32_t bs_certificate_same_files(const json_t *certificate, const json_t *now, bs_error *err);
int32_t bs_certificate_same_inputs(const json_t *certificate, const json_t *now, bs_error *err);
/* "0.1.0 by gcc 12.2.0, libc 2.36, on AMD EPYC": who made a certificate. */
void bs_certificate_maker(const json_t *certificate, char *out, size_t size);
#endif
