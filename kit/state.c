/* SPDX-License-Identifier: MIT
 * state.c - group hygiene, memory that ranks would share unseen: thread-local storage, which is wrong where
 * several ranks run on one thread, and globals of methods, which are wrong where they run on several. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <unistd.h>

#include "kit/layer.h"
#include "kit/symbols.h"

void kit_clean_tls(const kit_case *c) {
  kit_tls tls;
  (void)c;
  kit_assert(kit_tls_read(kit.options->plugin, &tls) == 0, "%s cannot be read", kit.options->plugin);
  kit_assert(
      tls.bytes == 0,
      "has %llu bytes of thread-local storage: ranks that share a thread would share it (keep state in the "
      "layer, plan or handle)",
      (unsigned long long)tls.bytes);
  kit_assert(tls.needs[0] == '\0', "uses the thread-local variable %s of a library", tls.needs);
}

/* ---- globals -------------------------------------------------------------------------------- */

enum { MAX_SPANS = 16 };

typedef struct span {
  const unsigned char *at;
  unsigned char *copy;
  uint64_t address; /* in the file */
  size_t bytes;
} span;

typedef struct spans {
  uintptr_t inside; /* an address of the object that is wanted */
  span span[MAX_SPANS];
  uint32_t n;
} spans;

static void add_span(spans *s, uintptr_t base, uint64_t begin, uint64_t end) {
  if (begin >= end || s->n == MAX_SPANS) return;
  s->span[s->n++] =
      (span){.at = (const unsigned char *)(base + begin), .address = begin, .bytes = (size_t)(end - begin)};
}

/* Collects writable memory: the writable segments without the part that is read-only after relocation. */
static int collect(struct dl_phdr_info *info, size_t size, void *opaque) {
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  spans *s = opaque;
  uint64_t relro[2] = {0, 0};
  int found = 0;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + h->p_vaddr;
    if (h->p_type == PT_LOAD && s->inside >= begin && s->inside < begin + h->p_memsz) found = 1;
    if (h->p_type != PT_GNU_RELRO) continue;
    relro[0] = h->p_vaddr;
    relro[1] = (h->p_vaddr + h->p_memsz) / page * page;
  }
  for (int i = 0; found && i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &info->dlpi_phdr[i];
    const uint64_t begin = h->p_vaddr, end = h->p_vaddr + h->p_memsz;
    if (h->p_type != PT_LOAD || (h->p_flags & PF_W) == 0) continue;
    if (relro[0] < relro[1] && relro[0] < end && relro[1] > begin) {
      add_span(s, info->dlpi_addr, begin, relro[0]);
      add_span(s, info->dlpi_addr, relro[1], end);
    } else {
      add_span(s, info->dlpi_addr, begin, end);
    }
  }
  return found;
}

/* Bytes between variables are read too: to a sanitizer that is a fault. */
__attribute__((noinline, no_sanitize("address"), no_sanitize("thread"))) static void copy_bytes(
    unsigned char *to, const volatile unsigned char *from, size_t n) {
  for (size_t i = 0; i < n; i++) to[i] = from[i];
}

/* Is it a counter that the compiler adds to measure coverage? */
static int of_the_compiler(const char *name) {
  static const char *const begins[] = {"__gcov", "__llvm_", "__prof", "__asan", "__odr_asan", "__sancov"};
  for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
    if (strncmp(name, begins[i], strlen(begins[i])) == 0) return 1;
  return 0;
}

static void compare(const span *s, const char *phase) {
  unsigned char *now = malloc(s->bytes);
  kit_assert(now != NULL, "no memory");
  copy_bytes(now, s->at, s->bytes);
  for (size_t i = 0; i < s->bytes; i++) {
    char name[128];
    uint64_t end;
    if (now[i] == s->copy[i]) continue;
    kit_symbol_at(kit.options->plugin, s->address + i, name, sizeof name, &end);
    kit_assert(of_the_compiler(name),
               "changes its global variable %s (byte 0x%llx of its data) %s: methods have "
               "no mutable globals",
               name[0] != '\0' ? name : "(no symbol)", (unsigned long long)(s->address + i), phase);
    i = (size_t)(end - s->address) - 1;
  }
  free(now);
}

/* Activation may still fill them; what ranks do may not. */
void kit_clean_globals(const kit_case *c) {
  static kit_plugin p;
  static spans s;
  bs_error err = BS_ERROR_INIT;
  const bs_method *m = NULL;
  void *state = NULL;
  bs_context *context = kit_method_context();
  kit_assert(kit_plugin_load(&p, kit.options, &err) == BS_OK, "%s: %s", err.id, err.message);
  kit_assert(bs_find_method(context, kit.survey->things[c->thing].name, &m, &state, &err) == BS_OK, "%s: %s",
             err.id, err.message);
  s.inside = (uintptr_t)p.desc;
  dl_iterate_phdr(collect, &s);
  for (uint32_t i = 0; i < s.n; i++) {
    s.span[i].copy = malloc(s.span[i].bytes);
    kit_assert(s.span[i].copy != NULL, "no memory");
    copy_bytes(s.span[i].copy, s.span[i].at, s.span[i].bytes);
  }
  kit_method_layer(context, m);
  for (uint32_t i = 0; i < s.n; i++) {
    compare(&s.span[i], "while a layer is built and run");
    free(s.span[i].copy);
  }
  bs_context_close(context);
}
