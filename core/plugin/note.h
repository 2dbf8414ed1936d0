/* SPDX-License-Identifier: MIT
 * note.h - what is read of a plugin file without opening it as code. */
#ifndef BS_CORE_PLUGIN_NOTE_H
#define BS_CORE_PLUGIN_NOTE_H
#include "blockshock/blockshock.h"

typedef struct bs_elf_info {
  uint32_t has_note;
  uint32_t note_size;   /* bytes of the note's descriptor */
  uint32_t has_query;   /* bs_plugin_query_<our major> is defined in .dynsym */
  uint32_t has_other;   /* bs_plugin_query_<other_major> is */
  uint32_t other_major; /* the largest of them */
  bs_note note;         /* zero-filled beyond note_size; strings terminated */
} bs_elf_info;

/* Reads an ELF file by pread: refuses what is not a shared library of this machine and everything of
 * which a segment, section or table lies outside the file (BS-PLG-ELF, BS-PLG-TRUNCATED). Thread-safe;
 * leaves fd open. */
BS_API int32_t bs_elf_read(int fd, bs_elf_info *out_info, bs_error *err);
/* The note of `info` against this host: magic, ABI, size, ledger, sanitizer, strings. */
BS_API int32_t bs_note_accept(const bs_elf_info *info, bs_error *err);
/* The ABI of a file's symbols: BS-PLG-ABI for another major, BS-PLG-SYMBOL for none. */
BS_API int32_t bs_symbol_accept(const bs_elf_info *info, bs_error *err);
#endif
