/* SPDX-License-Identifier: MIT
 * cache.h - the tuning file: JSON lines, one measured choice each, only ever appended to. The last line that
 * fits wins. Lines of other machines are kept and skipped; broken ones are counted and skipped. */
#ifndef BS_LAB_TUNE_CACHE_H
#define BS_LAB_TUNE_CACHE_H
#include "blockshock/blockshock.h"
#include "lab/case/ask.h"
#include "lab/store/lines.h"

typedef struct bs_tune_cache {
  json_t *machine; /* {cpu, cores} of this one */
  bs_lines lines;  /* of this machine */
} bs_tune_cache;

/* path NULL: an empty one that writes nowhere. BS_IO when a file is there and cannot be read (out is usable
 * then, and writes nowhere). */
int32_t bs_tune_cache_open(const char *path, bs_tune_cache *out, bs_error *err);
void bs_tune_cache_close(bs_tune_cache *cache);
/* 1, with a line for the reader: some lines are not entries. */
int bs_tune_cache_broken(const bs_tune_cache *cache, char *out, size_t size);
/* The newest entry with the key of `asked` that has each of its current candidates (same name, same plugin
 * file, same answer), whose choice is one of them, and whose search had the restrictions `restriction`
 * (--provider, --knob, --where of `bsrun tune`; {}: none). restriction NULL: any. NULL: no entry. */
const json_t *bs_tune_cache_find(const bs_tune_cache *cache, const json_t *asked, const json_t *restriction);
/* A new entry for a query ({key, default, candidates}): results ([{name, ...}]) become fields of their
 * candidates. NULL: out of memory. */
json_t *bs_tune_entry(const bs_tune_cache *cache, const json_t *asked, const char *choice,
                      const json_t *results);
#endif
