/* SPDX-License-Identifier: MIT
 * bench_sim.c - the engine of virtual time: messages a second of orders K and E, memory a rank, next to
 * the measured results of other simulators for the same job (one core of a two-core EPYC machine, -O3).
 * bench_sim [seconds a row, 1] */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/programs.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const struct {
  const char *name;
  program_step (*step)(const program *p, uint32_t rank, uint32_t i);
  uint32_t ranks, order;
  uint64_t ps; /* the known answer */
} rows[] = {
    {"ring p=1024, K", program_ring, 1024, SIM_ORDER_K, 1064902080},
    {"ring p=1024, E", program_ring, 1024, SIM_ORDER_E, 1064902080},
    {"ring p=4096, K", program_ring, 4096, SIM_ORDER_K, 4136932800},
    {"doubling p=65536, K", program_doubling, 65536, SIM_ORDER_K, 343544320},
    {"doubling p=65536, E", program_doubling, 65536, SIM_ORDER_E, 343544320},
    {"halving-doubling p=65536, K", program_halving, 65536, SIM_ORDER_K, 57942400},
};

/* Measures in a separate process, so that the peak of memory belongs to the row. */
static void measure(int row, double seconds) {
  double best = 1e30;
  const double begin = now();
  uint64_t messages = 0;
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  do {
    program p = {.step = rows[row].step, .ranks = rows[row].ranks, .bytes = UINT64_C(1) << 20};
    const double start = now();
    program_open(&p, rows[row].order, sim_link_of(0.5e-6, 50e9));
    if (sim_run(p.engine, NULL) != BS_OK || sim_latest(p.engine) != rows[row].ps) {
      fprintf(stderr, "bench_sim: %s: wrong answer %llu ps, not %llu\n", rows[row].name,
              (unsigned long long)sim_latest(p.engine), (unsigned long long)rows[row].ps);
      exit(6);
    }
    messages = sim_count(p.engine).messages;
    program_close(&p);
    const double took = now() - start;
    if (took < best) best = took;
  } while (now() - begin < seconds);
  getrusage(RUSAGE_SELF, &after);
  printf("| %s | %.3f | %.1f | %.1f | %.0f |\n", rows[row].name, best, (double)messages / best * 1e-6,
         (double)after.ru_maxrss / 1024,
         (double)(after.ru_maxrss - before.ru_maxrss) * 1024 / rows[row].ranks);
}

int main(int argc, char **argv) {
  const double seconds = argc > 1 ? strtod(argv[1], NULL) : 1;
  puts(
      "Ring, doubling and halving-doubling all-reduce of 1 MiB, one message a step, 0.5 us + 50 GB/s, no "
      "stacks.\n");
  puts("| ours | seconds | million messages/s | peak MiB | bytes a rank |");
  puts("| --- | --- | --- | --- | --- |");
  for (int i = 0; i < (int)(sizeof rows / sizeof rows[0]); i++) {
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0) return 10;
    if (child == 0) {
      measure(i, seconds);
      fflush(stdout);
      _exit(0);
    }
    if (waitpid(child, &status, 0) < 0 || status != 0) return 6;
  }
  puts("\nThe same ring of 1,024 on others, measured once elsewhere, not by this program:\n");
  puts("| peer | seconds | million messages/s | peak MiB |");
  puts("| --- | --- | --- | --- |");
  puts("| LogGOPSim 76451de | 4.41 | 0.48 | 589 |");
  puts("| ASTRA-sim 518bd51, analytical, congestion aware | 4.83 | 0.43 | 362 |");
  puts("| SimGrid SMPI 3.32 | 34.4 | 0.061 | 50 |");
  puts(
      "\nGoals: K at least 20 and E at least 3 million messages/s at p = 1,024; doubling at 65,536 in 5 s "
      "and 1 GiB.");
  return 0;
}
