/* SPDX-License-Identifier: MIT
 * st_header.h - the JSON header of a safetensors file. Internal to formats/. */
#ifndef BS_FORMATS_ST_HEADER_H
#define BS_FORMATS_ST_HEADER_H
#include <stddef.h>

#include "formats/safetensors.h"

/* Parse text[0..size) into out->tensors (names owned, offsets relative to the data, in the order of the
 * file), checking each tensor against data_bytes. Errors as bs_st_open, without the place. What was made
 * before an error stays in *out for bs_st_close. */
int32_t bs_st_parse_header(const char *text, size_t size, uint64_t data_bytes, bs_st *out, bs_error *err);
#endif
