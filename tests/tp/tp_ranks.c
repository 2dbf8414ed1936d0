/* SPDX-License-Identifier: MIT
 *
 * tp_ranks.c - started by mpirun: the bodies of the tests as ranks that are processes.
 *   tp_ranks COMM             every body that must succeed, one after another, where its world has this size
 *   tp_ranks COMM NAME        one body that must fail; a root cause is printed as "root RANK: MESSAGE"
 */
#include <sched.h>
#include <unistd.h>

#include "core/base/error.h"
#include "tests/tp/bodies.h"

static void root(void *user, uint32_t rank, const bs_error *err) {
  (void)user;
  printf("root %u: %s\n", rank, err->message);
}

/* MPI is not finalised behind a failure, and mpirun ends the job when the first process ends so: nobody does
 * before all have printed. They meet by files of the folder that they run in. */
static void await_all(uint32_t rank, uint32_t ranks) {
  char name[32];
  snprintf(name, sizeof name, "ended.%u", rank);
  FILE *f = fopen(name, "w");
  if (f == NULL) return;
  fclose(f);
  for (uint32_t r = 0; r < ranks; ++r) {
    snprintf(name, sizeof name, "ended.%u", r);
    while (access(name, F_OK) != 0) sched_yield();
  }
}

int main(int argc, char **argv) {
  bs_context *context = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_attachment here = {.struct_size = sizeof here};
  if (argc < 2) return 2;
  int32_t rc = bs_context_open(NULL, &context, &err);
  if (rc == BS_OK) rc = bs_context_attach(context, argv[1], &here, &err);
  int ran = 0, processes = 1;
  for (int i = 0; i < tp_n_bodies && rc == BS_OK; ++i) {
    const tp_body *b = &tp_bodies[i];
    if (b->world != here.world_size || (argc > 2 ? strcmp(argv[2], b->name) != 0 : b->fails != NULL))
      continue;
    const bs_world_options world = {.struct_size = sizeof world,
                                    .backend = "ref",
                                    .comm = argv[1],
                                    .threads_per_rank = 1,
                                    .timeout_s = 30};
    const bs_tp_spawn_options o = {
        .struct_size = sizeof o, .tensor_size = b->tensor_size, .world = &world, .failed = root};
    rc = bs_tp_spawn(context, &o, b->fn, argc > 2 ? &processes : NULL, &err);
    ran++;
    if (rc != BS_OK) printf("%s fails: [%s] %s\n", b->name, err.id, err.message);
  }
  if (rc == BS_OK) printf("rank %u: %d bodies\n", here.rank, ran);
  if (rc != BS_OK && ran == 0) printf("[%s] %s\n", err.id, err.message);
  fflush(stdout);
  if (argc > 2) await_all(here.rank, here.world_size);
  bs_context_close(context);
  return rc == BS_OK && ran > 0 ? 0 : bs_status_exit_code(rc != BS_OK ? rc : BS_USAGE);
}
