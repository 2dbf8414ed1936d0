/* SPDX-License-Identifier: MIT
 * test_plugin_layout.c - the layouts of other linkers than the one that built this tree: lld and mold put
 * what becomes read-only into a segment of its own and lets it end with that segment's last page, beyond its
 * memory. */
#include "core/plugin/layout.h"
#include "tests/plugin/plugin_test.h"
#include "tests/run_tests.h"

#define LOAD(at, flags, size, align) \
  { PT_LOAD, (flags), (at) & ((align)-1), (at), (at), (size), (size), (align) }

typedef struct layout {
  Elf64_Phdr segments[5];
  Elf64_Shdr sections[3];
} layout;

/* As LLD 14 wrote a plugin. */
static layout of_lld(uint64_t align) {
  const layout l = {{LOAD(0x0000, PF_R, 0x1154, align),
                     LOAD(0x20b0 + align, PF_R | PF_W, 0x218, align),
                     LOAD(0x22c8 + 2 * align, PF_R | PF_W, 0x48, align),
                     {PT_DYNAMIC, PF_R | PF_W, 0, 0, 0, 0x190, 0x190, 8},
                     {PT_GNU_RELRO, PF_R, 0, 0, 0, 0x218, 0, 1}},
                    {{.sh_type = SHT_PROGBITS,
                      .sh_flags = SHF_ALLOC,
                      .sh_addr = 0x100,
                      .sh_offset = 0x100,
                      .sh_size = 0x40},
                     {.sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC | SHF_WRITE, .sh_size = 0x58},
                     {.sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC | SHF_WRITE, .sh_size = 0x48}}};
  return l;
}

/* Fills in what follows from the addresses of the writable segments. */
static const char *judge(layout *l, uint64_t relro_size) {
  const Elf64_Phdr *own = &l->segments[1], *data = &l->segments[2];
  l->segments[3].p_vaddr = own->p_vaddr + 0x68;
  l->segments[3].p_offset = own->p_offset + 0x68;
  l->segments[4].p_vaddr = own->p_vaddr;
  l->segments[4].p_memsz = relro_size;
  l->sections[1].sh_addr = own->p_vaddr;
  l->sections[1].sh_offset = own->p_offset;
  l->sections[2].sh_addr = data->p_vaddr;
  l->sections[2].sh_offset = data->p_offset;
  const bs_elf_view view = {1u << 20, l->segments, 5, l->sections, 3};
  return bs_layout_segments(&view);
}

START_TEST(lld_ends_its_read_only_part_with_the_page) {
  static const uint64_t aligns[] = {0x1000, 0x10000}; /* x86-64, aarch64 */
  for (size_t i = 0; i < 2; i++) {
    layout l = of_lld(aligns[i]);
    const uint64_t begin = l.segments[1].p_vaddr, data = l.segments[2].p_vaddr / 0x1000 * 0x1000;
    const uint64_t page = (begin + 0x218 + aligns[i] - 1) / aligns[i] * aligns[i];
    ck_assert_uint_le(page, data);
    ck_assert_pstr_eq(judge(&l, 0x218), NULL);
    ck_assert_pstr_eq(judge(&l, page - begin), NULL);
    ck_assert_ptr_nonnull(strstr(judge(&l, page - begin + 1), "read-only part"));
    ck_assert_ptr_nonnull(strstr(judge(&l, UINT64_MAX), "read-only part"));
    ck_assert_ptr_nonnull(strstr(judge(&l, 0 - begin), "read-only part"));
  }
}
END_TEST

START_TEST(it_does_not_reach_into_the_next_segment) {
  layout l = of_lld(0x10000);
  l.segments[2].p_vaddr = l.segments[1].p_vaddr + 0x2218; /* in the same 64 KiB, on a page of its own */
  l.segments[2].p_offset = l.segments[2].p_vaddr & 0xffff;
  l.segments[1].p_offset = l.segments[1].p_vaddr & 0xffff;
  const uint64_t room = l.segments[2].p_vaddr / 0x1000 * 0x1000 - l.segments[1].p_vaddr;
  ck_assert_pstr_eq(judge(&l, room), NULL);
  ck_assert_ptr_nonnull(strstr(judge(&l, room + 1), "no segment holds"));
}
END_TEST

/* mold, and lld from 18 on, fill the rest of that page by a section of zeros. A .bss there is none. */
START_TEST(mold_pads_its_read_only_part) {
  layout l = of_lld(0x1000);
  const uint64_t begin = l.segments[1].p_vaddr, page = begin / 0x1000 * 0x1000 + 0x1000;
  l.segments[1].p_memsz = page - begin;
  l.sections[0] = (Elf64_Shdr){.sh_type = SHT_NOBITS,
                               .sh_flags = SHF_ALLOC | SHF_WRITE,
                               .sh_addr = begin + 0x218,
                               .sh_size = page - begin - 0x218};
  ck_assert_pstr_eq(judge(&l, page - begin), NULL);
  l.sections[0].sh_size -= 8;
  ck_assert_ptr_nonnull(strstr(judge(&l, page - begin), "covers its data"));
  ck_assert_pstr_eq(judge(&l, 0x218), NULL); /* the page stays writable then */
}
END_TEST

int main(void) {
  const test_case tests[] = {{lld_ends_its_read_only_part_with_the_page},
                             {it_does_not_reach_into_the_next_segment},
                             {mold_pads_its_read_only_part},
                             {0}};
  return run_tests("plugin_layout", tests, (test_setup){0});
}
