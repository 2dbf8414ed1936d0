/* SPDX-License-Identifier: MIT
 *
 * cpuid.c - what this processor can do, and the kernel table that follows from it. Asked once, at
 * activation; the parameter `isa` forces a table, so that tests reach all of them on one machine. */
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__x86_64__)
/* Linux gives a process the tiles when it asks, before it starts threads that use them. */
static int tiles_granted(void) {
#if defined(__linux__)
  enum { ASK = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
  return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
#else
  return 0;
#endif
}

static int has_amx(void) {
  unsigned a = 0, b = 0, c = 0, d = 0, low = 0, high = 0;
  const unsigned wanted = 1u << 22 | 1u << 24 | 1u << 25; /* bf16, tiles, int8 */
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & wanted) != wanted) return 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_OSXSAVE) == 0) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17 & 3u) == 3u && tiles_granted();
}

/* The compiler's check covers the operating system's part (saved registers); F16C and the 16-bit types
 * are not all known to it. */
void cpu_isa_detect(cpu_isa *out_isa) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  memset(out_isa, 0, sizeof *out_isa);
  __builtin_cpu_init();
  const int f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
  out_isa->avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && f16c;
  out_isa->avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  out_isa->avx512 &= out_isa->avx2;
  if (!out_isa->avx512) return;
  if (__builtin_cpu_is("amd") && __get_cpuid(1, &a, &b, &c, &d))
    out_isa->avx512_halves = (a >> 8 & 15u) + (a >> 20 & 255u) == 0x19;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) out_isa->avx512_bf16 = a >> 5 & 1u;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    out_isa->avx512_fp16 = d >> 23 & 1u;
    out_isa->avx512_vnni = c >> 11 & 1u;
  }
  out_isa->amx_bf16 = out_isa->avx512_bf16 && has_amx();
  /* No bit of CPUID tells the units. Processors with AMX have two. */
  out_isa->avx512_units = out_isa->avx512_halves ? 1 : out_isa->amx_bf16 ? 2 : cpu_units_measure();
}

void cpu_name(char *out_name, size_t size) {
  unsigned word[12] = {0};
  for (unsigned i = 0; i < 3; i++)
    if (!__get_cpuid(0x80000002u + i, &word[4 * i], &word[4 * i + 1], &word[4 * i + 2], &word[4 * i + 3])) {
      snprintf(out_name, size, "x86-64 CPU");
      return;
    }
  char text[sizeof word + 1] = "";
  memcpy(text, word, sizeof word);
  const char *start = text + strspn(text, " ");
  snprintf(out_name, size, "%s", start);
  for (size_t n = strlen(out_name); n > 0 && out_name[n - 1] == ' ';) out_name[--n] = '\0';
}
#else
void cpu_isa_detect(cpu_isa *out_isa) {
  memset(out_isa, 0, sizeof *out_isa);
}

void cpu_name(char *out_name, size_t size) {
  snprintf(out_name, size, "CPU");
}
#endif

void cpu_isa_text(const cpu_isa *isa, char *out_text, size_t size) {
  snprintf(out_text, size, "%s%s%s%s%s", isa->avx2 ? "avx2+fma+f16c" : "baseline",
           isa->avx512 ? " avx512" : "", isa->avx512_bf16 ? " avx512_bf16" : "",
           isa->avx512_fp16 ? " avx512_fp16" : "", isa->amx_bf16 ? " amx_bf16" : "");
}

#ifdef BS_CPU_X86
static int wants(const char *wanted, const char *name) {
  return strcmp(wanted, "auto") == 0 || strcmp(wanted, name) == 0;
}
#endif

/* Half of the L3, which X, Y and the neighbours share; of an unknown one 8 MiB. */
uint64_t cpu_streamed_bytes(void) {
  long l3 = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
  l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
  return l3 > (16 << 20) ? (uint64_t)l3 / 2 : 8 << 20;
}

#ifdef BS_CPU_X86
/* A processor may execute 512 bits as twice 256. Then sums of selected values are faster with 256 bits: a
 * permutation of 512 bits delays the multiply-adds. The results are bit-equal. A named set is used without
 * this change. */
static void choose_halves(const cpu_isa *isa, const char *wanted, cpu_kernels *kernels) {
  if (isa->avx512_halves && strcmp(wanted, "auto") == 0) kernels->sums24 = cpu_kernels_avx2.sums24;
}

/* Products of integers by VNNI, whose results are bit-equal. The set `avx512` by name is used without them.
 */
static void choose_vnni(const cpu_isa *isa, const char *wanted, cpu_kernels *kernels) {
  if (!isa->avx512_vnni || strcmp(wanted, "avx512") == 0) return;
  kernels->pairs = cpu_avx512_vnni_pairs;
  kernels->quant = &cpu_quant_avx512_vnni;
}
#endif

/* The vectors' part of the table; 0: this processor or build has none of that name. */
static int choose_vectors(const cpu_isa *isa, const char *wanted, cpu_kernels *out_kernels) {
#ifdef BS_CPU_X86
  if (isa->avx512_bf16 && wants(wanted, "avx512_bf16")) {
    *out_kernels = cpu_kernels_avx512;
    out_kernels->name = "avx512_bf16";
    out_kernels->dot = cpu_avx512_bf16_dot;
    out_kernels->bf16_swap = cpu_avx512_bf16_swap;
    out_kernels->widen[1] = cpu_avx512_bf16_widen; /* of pairs with the second first */
    out_kernels->tile[1] = NULL;
    out_kernels->narrow24_dot = cpu_avx512_bf16_dot24;
    out_kernels->narrow_dot_tokens = CPU_DOT24_TOKENS;
    out_kernels->attend_bf16[0] = cpu_avx512_bf16_attend;
    out_kernels->attend_bf16[1] = cpu_avx512_bf16_attend_fast;
    out_kernels->bf16_turn = cpu_avx512_bf16_turn;
    out_kernels->bf16_zip = cpu_avx512_bf16_zip;
    choose_vnni(isa, wanted, out_kernels);
    choose_halves(isa, wanted, out_kernels);
    return 1;
  }
  if (isa->avx512 && wants(wanted, "avx512")) {
    *out_kernels = cpu_kernels_avx512;
    choose_vnni(isa, wanted, out_kernels);
    choose_halves(isa, wanted, out_kernels);
    return 1;
  }
  if (isa->avx2 && wants(wanted, "avx2")) {
    *out_kernels = cpu_kernels_avx2;
    return 1;
  }
#endif
  if (strcmp(wanted, "auto") != 0 && strcmp(wanted, "portable") != 0) return 0;
  *out_kernels = cpu_kernels_portable;
  return 1;
}

static void choose_units(const cpu_isa *isa, const char *units, cpu_kernels *kernels) {
  kernels->units = 1;
  if (kernels->panels_two[1] == 0) return;
  if (strcmp(units, "auto") == 0 ? isa->avx512_units < 2 : strcmp(units, "2") != 0) return;
  kernels->units = 2;
  memcpy(kernels->panels, kernels->panels_two, sizeof kernels->panels);
}

const char *cpu_class(const cpu_kernels *kernels) {
  if (kernels->amx != NULL) return "amx";
  return kernels->units == 2                        ? "avx512x2"
         : strncmp(kernels->name, "avx512", 6) == 0 ? "avx512"
                                                    : kernels->name;
}

/* Attention beside the model's products: plain C on every processor. */
static void use_model(cpu_kernels *kernels) {
  kernels->name = "amx_model";
  kernels->attend_bf16[0] = cpu_amx_model_attend;
  kernels->attend_bf16[1] = cpu_amx_model_attend_fast;
  kernels->bf16_turn = cpu_amx_model_turn;
  kernels->bf16_zip = cpu_amx_model_zip;
}

int32_t cpu_kernels_choose(const cpu_isa *isa, const char *wanted, const char *units,
                           cpu_kernels *out_kernels, bs_error *err) {
  const cpu_amx *amx = NULL;
  if (strcmp(wanted, "amx_model") == 0) amx = &cpu_amx_model;
#ifdef BS_CPU_X86
  if (isa->amx_bf16 && wants(wanted, "amx")) amx = &cpu_amx_tiles;
#endif
  if (choose_vectors(isa, amx != NULL ? "auto" : wanted, out_kernels)) {
    if (amx != NULL) out_kernels->name = "amx";
    out_kernels->amx = amx;
    if (amx == &cpu_amx_model) use_model(out_kernels);
    choose_units(isa, units, out_kernels);
    return BS_OK;
  }
  char has[64];
  cpu_isa_text(isa, has, sizeof has);
  bs_fail(err, BS_UNAVAILABLE, "BS-CPU-ISA", "isa=%s: this processor or build has %s only", wanted, has);
  bs_fail_hint(err, "use isa=auto or isa=portable");
  return BS_UNAVAILABLE;
}
