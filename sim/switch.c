/* SPDX-License-Identifier: MIT
 * switch.c - see switch.h. What the calling conventions keep over a call: on x86-64 six registers and the two
 * control words of floating point, on aarch64 x19 to x30 and the low halves of v8 to v15. */
#include "sim/switch.h"

#include <string.h>

#if !defined(SIM_UCONTEXT)
void sim_switch_enter(void) __attribute__((visibility("hidden")));

#if defined(__x86_64__)
__asm__(
    ".text\n"
    ".p2align 4\n"
    ".globl sim_switch\n"
    ".hidden sim_switch\n"
    ".type sim_switch, @function\n"
    "sim_switch:\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  subq $8, %rsp\n"
    "  stmxcsr (%rsp)\n"
    "  fnstcw 4(%rsp)\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  ldmxcsr (%rsp)\n"
    "  fldcw 4(%rsp)\n"
    "  addq $8, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  ret\n"
    ".size sim_switch, .-sim_switch\n"
    ".p2align 4\n"
    ".globl sim_switch_enter\n"
    ".hidden sim_switch_enter\n"
    ".type sim_switch_enter, @function\n"
    "sim_switch_enter:\n"
    "  .cfi_startproc\n"
    "  .cfi_undefined rip\n"
    "  movq %r12, %rdi\n"
    "  xorl %ebp, %ebp\n"
    "  callq *%r13\n"
    "  ud2\n"
    "  .cfi_endproc\n"
    ".size sim_switch_enter, .-sim_switch_enter\n");

void *sim_switch_first(void *top, void (*enter)(void *arg), void *arg) {
  uint64_t *sp = (uint64_t *)top - 2; /* the entry begins with a stack of 16 bytes' alignment */
  uint32_t words[2] = {0};
  __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(words[0]), "=m"(words[1]));
  *--sp = (uint64_t)(uintptr_t)sim_switch_enter;
  *--sp = 0;                          /* rbp */
  *--sp = 0;                          /* rbx */
  *--sp = (uint64_t)(uintptr_t)arg;   /* r12 */
  *--sp = (uint64_t)(uintptr_t)enter; /* r13 */
  *--sp = 0;                          /* r14 */
  *--sp = 0;                          /* r15 */
  memcpy(--sp, words, sizeof words);
  return sp;
}

#else /* aarch64 */
__asm__(
    ".text\n"
    ".p2align 4\n"
    ".globl sim_switch\n"
    ".hidden sim_switch\n"
    ".type sim_switch, %function\n"
    "sim_switch:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp]\n"
    "  stp x21, x22, [sp, #16]\n"
    "  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n"
    "  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n"
    "  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n"
    "  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n"
    "  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp]\n"
    "  ldp x21, x22, [sp, #16]\n"
    "  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n"
    "  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n"
    "  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n"
    "  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    ".size sim_switch, .-sim_switch\n"
    ".p2align 4\n"
    ".globl sim_switch_enter\n"
    ".hidden sim_switch_enter\n"
    ".type sim_switch_enter, %function\n"
    "sim_switch_enter:\n"
    "  .cfi_startproc\n"
    "  .cfi_undefined x30\n"
    "  mov x0, x19\n"
    "  mov x29, xzr\n"
    "  blr x20\n"
    "  brk #1\n"
    "  .cfi_endproc\n"
    ".size sim_switch_enter, .-sim_switch_enter\n");

void *sim_switch_first(void *top, void (*enter)(void *arg), void *arg) {
  uint64_t *sp = (uint64_t *)top - 20;
  memset(sp, 0, 20 * sizeof *sp);
  sp[0] = (uint64_t)(uintptr_t)arg;               /* x19 */
  sp[1] = (uint64_t)(uintptr_t)enter;             /* x20 */
  sp[11] = (uint64_t)(uintptr_t)sim_switch_enter; /* x30 */
  return sp;
}
#endif
#else
extern int sim_switch_is_ucontext; /* a file may not be empty */
#endif
