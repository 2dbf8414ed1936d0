/* SPDX-License-Identifier: MIT
 * note.c - reads a plugin file without running it: a 64-bit little-endian ELF shared library of this
 * machine, whole (dlopen of a cut file ends in SIGBUS, or worse, works), with its note
 * .note.blockshock and its bs_plugin_query_<n> symbols. Called by file.c. */
#include "core/plugin/note.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blockshock/plugin.h"
#include "core/base/error.h"
#include "core/base/size.h"
#include "core/plugin/accept.h"
#include "core/plugin/layout.h"
#include "core/plugin/relocs.h"

#if defined(__x86_64__)
#define HOST_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define HOST_MACHINE EM_AARCH64
#else
#error "plugins are read on x86-64 and aarch64 only"
#endif

enum { MAX_TABLE = 4096, MAX_NOTES = 1 << 20, MAX_SYMBOLS = 64 << 20 };
static const char query_prefix[] = "bs_plugin_query_";

typedef struct elf_file {
  int fd;
  uint64_t size;
  Elf64_Ehdr header;
  Elf64_Phdr *segments;
  Elf64_Shdr *sections;
} elf_file;

static int32_t truncated(bs_error *err, const elf_file *f, const char *what, uint64_t offset, uint64_t size) {
  bs_error_set(err, BS_PLUGIN, "BS-PLG-TRUNCATED",
               "file is cut short: %s needs bytes %llu..+%llu, the file has %llu", what,
               (unsigned long long)offset, (unsigned long long)size, (unsigned long long)f->size);
  bs_error_hint(err, "copy or build it again");
  return BS_PLUGIN;
}

static int32_t not_ours(bs_error *err, const char *what) {
  return bs_error_set(err, BS_PLUGIN, "BS-PLG-ELF", "%s", what);
}

static int inside(const elf_file *f, uint64_t offset, uint64_t size) {
  uint64_t end;
  return bs_add_u64(offset, size, &end) && end <= f->size;
}

/* size bytes at offset, or an error: short reads happen when the file shrinks under us. */
static int32_t read_at(const elf_file *f, void *buffer, uint64_t size, uint64_t offset, const char *what,
                       bs_error *err) {
  char *to = buffer;
  uint64_t done = 0;
  if (!inside(f, offset, size)) return truncated(err, f, what, offset, size);
  while (done < size) {
    ssize_t n = pread(f->fd, to + done, (size_t)(size - done), (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return bs_error_errno(err, BS_PLUGIN, "BS-PLG-LOAD", errno, "cannot read %s", what);
    if (n == 0) return truncated(err, f, what, offset, size);
    done += (uint64_t)n;
  }
  return BS_OK;
}

static int32_t read_new(const elf_file *f, void **out, uint64_t size, uint64_t offset, const char *what,
                        bs_error *err) {
  if (!inside(f, offset, size)) return truncated(err, f, what, offset, size);
  void *buffer = calloc(1, size ? (size_t)size : 1);
  if (buffer == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory for %llu bytes of %s",
                        (unsigned long long)size, what);
  int32_t rc = read_at(f, buffer, size, offset, what, err);
  if (rc != BS_OK) {
    free(buffer);
    return rc;
  }
  *out = buffer;
  return BS_OK;
}

static int32_t check_header(elf_file *f, bs_error *err) {
  Elf64_Ehdr *h = &f->header;
  unsigned char magic[SELFMAG];
  if (f->size < SELFMAG) return truncated(err, f, "the ELF header", 0, sizeof *h);
  int32_t rc = read_at(f, magic, SELFMAG, 0, "the ELF magic", err);
  if (rc != BS_OK) return rc;
  if (memcmp(magic, ELFMAG, SELFMAG) != 0) return not_ours(err, "is not an ELF file");
  rc = read_at(f, h, sizeof *h, 0, "the ELF header", err);
  if (rc != BS_OK) return rc;
  if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB)
    return not_ours(err, "is not a 64-bit little-endian ELF file");
  if (h->e_machine != HOST_MACHINE)
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-ELF", "is built for ELF machine %u, host is %u",
                        (unsigned)h->e_machine, (unsigned)HOST_MACHINE);
  if (h->e_type != ET_DYN) return not_ours(err, "is not a shared library (link it with -shared)");
  if (h->e_phentsize != sizeof(Elf64_Phdr) || h->e_phnum == 0 || h->e_phnum > MAX_TABLE)
    return not_ours(err, "has no usable program header table");
  if (h->e_shoff == 0 || h->e_shnum == 0)
    return not_ours(err, "has no section table (do not remove it; plain strip keeps it)");
  if (h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shnum > MAX_TABLE)
    return not_ours(err, "has no usable section table");
  return BS_OK;
}

static int32_t check_segments(elf_file *f, bs_error *err) {
  uint32_t dynamic = 0;
  int32_t rc = read_new(f, (void **)&f->segments, (uint64_t)f->header.e_phnum * sizeof(Elf64_Phdr),
                        f->header.e_phoff, "the program header table", err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < f->header.e_phnum; i++) {
    const Elf64_Phdr *p = &f->segments[i];
    if (p->p_type == PT_NULL) continue;
    if (!inside(f, p->p_offset, p->p_filesz)) return truncated(err, f, "a segment", p->p_offset, p->p_filesz);
    if (p->p_type == PT_LOAD && p->p_filesz > p->p_memsz)
      return not_ours(err, "has a segment larger in the file than in memory");
    if (p->p_type == PT_DYNAMIC) dynamic++;
  }
  if (dynamic > 1) return not_ours(err, "has two dynamic segments");
  return dynamic ? BS_OK : not_ours(err, "has no dynamic segment (link it with -shared)");
}

static int32_t check_sections(elf_file *f, bs_error *err) {
  int32_t rc = read_new(f, (void **)&f->sections, (uint64_t)f->header.e_shnum * sizeof(Elf64_Shdr),
                        f->header.e_shoff, "the section table", err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < f->header.e_shnum; i++) {
    const Elf64_Shdr *s = &f->sections[i];
    if (s->sh_type == SHT_NULL || s->sh_type == SHT_NOBITS) continue;
    if (!inside(f, s->sh_offset, s->sh_size)) return truncated(err, f, "a section", s->sh_offset, s->sh_size);
  }
  return BS_OK;
}

/* *out_wrong: what is wrong with the relocations, NULL for nothing. */
static int32_t check_relocs(const elf_file *f, const bs_elf_view *view, const Elf64_Dyn *table, uint64_t n,
                            const char **out_wrong, bs_error *err) {
  static const int64_t tags[] = {DT_RELA, DT_JMPREL};
  for (size_t i = 0; i < sizeof tags / sizeof tags[0] && *out_wrong == NULL; i++) {
    const Elf64_Shdr *s = bs_relocs_section(view, table, n, tags[i]);
    Elf64_Rela *all = NULL;
    if (s != NULL && s->sh_size > MAX_SYMBOLS) return not_ours(err, "has too many relocations");
    if (s != NULL) {
      const int32_t rc = read_new(f, (void **)&all, s->sh_size, s->sh_offset, "the relocations", err);
      if (rc != BS_OK) return rc;
    }
    const bs_reloc_table relocs = {tags[i], all, s != NULL ? s->sh_size / sizeof *all : 0};
    *out_wrong = bs_relocs_check(view, table, n, &relocs);
    free(all);
  }
  return BS_OK;
}

/* Would the loader stay inside what it maps? */
static int32_t check_layout(const elf_file *f, bs_error *err) {
  const bs_elf_view view = {f->size, f->segments, f->header.e_phnum, f->sections, f->header.e_shnum};
  const char *wrong = bs_layout_segments(&view);
  for (uint32_t i = 0; i < f->header.e_phnum && wrong == NULL; i++) {
    const Elf64_Phdr *p = &f->segments[i];
    Elf64_Dyn *table = NULL;
    if (p->p_type != PT_DYNAMIC) continue;
    if (p->p_filesz > MAX_NOTES || p->p_filesz % sizeof *table != 0)
      return not_ours(err, "has a dynamic table of an odd size");
    const int32_t rc = read_new(f, (void **)&table, p->p_filesz, p->p_offset, "the dynamic table", err);
    if (rc != BS_OK) return rc;
    const uint64_t n = p->p_filesz / sizeof *table;
    wrong = bs_layout_dynamic(&view, table, n);
    const int32_t unread = wrong == NULL ? check_relocs(f, &view, table, n, &wrong, err) : BS_OK;
    free(table);
    if (unread != BS_OK) return unread;
  }
  if (wrong == NULL) return BS_OK;
  bs_error_set(err, BS_PLUGIN, "BS-PLG-ELF", "%s", wrong);
  bs_error_hint(err, "it is damaged, or its linker is unusual; copy or build it again");
  return BS_PLUGIN;
}

/* "bs_plugin_query_<n>" -> n; 0 when the name is another. */
static int query_major(const char *name, uint32_t *out_major) {
  uint32_t major = 0;
  if (strncmp(name, query_prefix, sizeof query_prefix - 1) != 0) return 0;
  const char *digits = name + sizeof query_prefix - 1;
  size_t n = strspn(digits, "0123456789");
  if (n == 0 || n > 5 || digits[n] != '\0') return 0;
  for (size_t i = 0; i < n; i++) major = major * 10 + (uint32_t)(digits[i] - '0');
  *out_major = major;
  return 1;
}

static void scan_symbols(const Elf64_Sym *symbols, uint64_t count, const char *names, uint64_t names_size,
                         bs_elf_info *info) {
  for (uint64_t i = 0; i < count; i++) {
    uint32_t major;
    if (symbols[i].st_shndx == SHN_UNDEF || symbols[i].st_name >= names_size) continue;
    if (!query_major(names + symbols[i].st_name, &major)) continue;
    if (major == BS_ABI_MAJOR) {
      info->has_query = 1;
    } else {
      if (!info->has_other || major > info->other_major) info->other_major = major;
      info->has_other = 1;
    }
  }
}

static int32_t read_symbols(const elf_file *f, bs_elf_info *info, bs_error *err) {
  const Elf64_Shdr *table = NULL, *text;
  Elf64_Sym *symbols = NULL;
  char *names = NULL;
  for (uint32_t i = 0; i < f->header.e_shnum && table == NULL; i++)
    if (f->sections[i].sh_type == SHT_DYNSYM) table = &f->sections[i];
  if (table == NULL) return not_ours(err, "has no dynamic symbol table (link it with -shared)");
  if (table->sh_link >= f->header.e_shnum || table->sh_entsize != sizeof(Elf64_Sym))
    return not_ours(err, "has a damaged dynamic symbol table");
  text = &f->sections[table->sh_link];
  if (text->sh_type != SHT_STRTAB || table->sh_size > MAX_SYMBOLS || text->sh_size > MAX_SYMBOLS)
    return not_ours(err, "has a damaged dynamic symbol table");
  int32_t rc =
      read_new(f, (void **)&symbols, table->sh_size, table->sh_offset, "the dynamic symbol table", err);
  if (rc == BS_OK)
    rc = read_new(f, (void **)&names, text->sh_size, text->sh_offset, "the dynamic symbol names", err);
  if (rc == BS_OK && (text->sh_size == 0 || names[text->sh_size - 1] != '\0'))
    rc = not_ours(err, "has a damaged dynamic symbol table");
  if (rc == BS_OK) scan_symbols(symbols, table->sh_size / sizeof(Elf64_Sym), names, text->sh_size, info);
  free(symbols);
  free(names);
  return rc;
}

static void take_note(const char *data, uint32_t size, bs_elf_info *info) {
  bs_note *n = &info->note;
  info->has_note = 1;
  info->note_size = size;
  memset(n, 0, sizeof *n);
  memcpy(n, data, size < sizeof *n ? size : sizeof *n);
}

static uint64_t align_up(uint64_t value, uint64_t align) {
  return (value + align - 1) & ~(align - 1);
}

static void scan_notes(const char *data, uint64_t size, uint64_t align, bs_elf_info *info) {
  uint64_t at = 0;
  while (size - at >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr h;
    memcpy(&h, data + at, sizeof h);
    uint64_t name = at + sizeof h;
    uint64_t desc = align_up(name + h.n_namesz, align); /* 32-bit lengths: no overflow in 64 */
    uint64_t next = align_up(desc + h.n_descsz, align);
    if (desc > size || desc + h.n_descsz > size) return;
    if (h.n_type == BS_NOTE_TYPE && h.n_namesz == sizeof BS_NOTE_OWNER &&
        memcmp(data + name, BS_NOTE_OWNER, sizeof BS_NOTE_OWNER) == 0) {
      take_note(data + desc, h.n_descsz, info);
      return;
    }
    if (next > size) return;
    at = next;
  }
}

static int32_t read_notes(const elf_file *f, bs_elf_info *info, bs_error *err) {
  for (uint32_t i = 0; i < f->header.e_phnum && !info->has_note; i++) {
    const Elf64_Phdr *p = &f->segments[i];
    char *data = NULL;
    if (p->p_type != PT_NOTE || p->p_filesz > MAX_NOTES) continue;
    int32_t rc = read_new(f, (void **)&data, p->p_filesz, p->p_offset, "a note", err);
    if (rc != BS_OK) return rc;
    scan_notes(data, p->p_filesz, p->p_align == 8 ? 8 : 4, info);
    free(data);
  }
  return BS_OK;
}

int32_t bs_elf_read(int fd, bs_elf_info *out_info, bs_error *err) {
  elf_file f;
  struct stat st;
  memset(&f, 0, sizeof f);
  memset(out_info, 0, sizeof *out_info);
  f.fd = fd;
  if (fstat(fd, &st) != 0)
    return bs_error_errno(err, BS_PLUGIN, "BS-PLG-LOAD", errno, "cannot stat the file");
  f.size = (uint64_t)st.st_size;
  int32_t rc = check_header(&f, err);
  if (rc == BS_OK) rc = check_segments(&f, err);
  if (rc == BS_OK) rc = check_sections(&f, err);
  if (rc == BS_OK) rc = check_layout(&f, err);
  if (rc == BS_OK) rc = read_symbols(&f, out_info, err);
  if (rc == BS_OK) rc = read_notes(&f, out_info, err);
  free(f.segments);
  free(f.sections);
  return rc;
}

int32_t bs_symbol_accept(const bs_elf_info *info, bs_error *err) {
  if (info->has_query) return BS_OK;
  if (info->has_other) return bs_accept_abi(BS_ABI_VERSION, BS_ABI_MAKE(info->other_major, 0), 0, err);
  bs_error_set(err, BS_PLUGIN, "BS-PLG-SYMBOL", "has no %s: it is not a plugin", BS_PLUGIN_QUERY_SYMBOL);
  bs_error_hint(err, "use BS_PLUGIN_DEFINE of blockshock/plugin.h, and do not hide the symbol");
  return BS_PLUGIN;
}

/* Terminated, and nothing that would disturb a terminal when listed. */
static int text_clean(const char *text, size_t size, int newlines) {
  const char *end = memchr(text, '\0', size);
  if (end == NULL) return 0;
  for (const char *p = text; p < end; p++)
    if ((unsigned char)*p < 0x20 ? !(newlines && *p == '\n') : *p == 0x7f) return 0;
  return 1;
}

int32_t bs_note_accept(const bs_elf_info *info, bs_error *err) {
  const bs_note *n = &info->note;
  if (info->note_size < offsetof(bs_note, ledger_hash) || n->magic != BS_NOTE_MAGIC ||
      n->struct_size > info->note_size)
    return bs_error_set(
        err, BS_PLUGIN, "BS-PLG-NOTE",
        "note .note.blockshock is damaged: %u bytes, struct_size %u, magic %08x, host has %08x",
        info->note_size, n->struct_size, n->magic, BS_NOTE_MAGIC);
  int32_t rc = bs_accept_abi(BS_ABI_VERSION, n->abi, n->min_host_minor, err);
  if (rc == BS_OK) rc = bs_accept_size(BS_ABI_VERSION, "bs_note", n->struct_size, sizeof *n, sizeof *n, err);
  if (rc == BS_OK) rc = bs_accept_ledger(BS_ABI_VERSION, n->abi, BS_ABI_LEDGER_HASH, n->ledger_hash, err);
  if (rc == BS_OK) rc = bs_accept_sanitizer(BS_THIS_SANITIZER, n->sanitizer, err);
  if (rc != BS_OK) return rc;
  if (!text_clean(n->id, sizeof n->id, 0) || !text_clean(n->version, sizeof n->version, 0) ||
      !text_clean(n->summary, sizeof n->summary, 0) || !text_clean(n->things, sizeof n->things, 1))
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-NOTE",
                        "note .note.blockshock is damaged: a text is unterminated or has control characters");
  return BS_OK;
}
