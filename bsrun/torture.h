/* SPDX-License-Identifier: MIT
 * torture.h - the parts of the torture verb: torture.c (options, subjects), torture_plan.c (one run of the
 * program of collectives, and how its ranks come to be), torture_list.c (what is injected
 * where), torture_run.c (child processes), torture_judge.c (is it as specified), torture_card.c (the score
 * card). docs/torture.md has the rules. */
#ifndef BSRUN_TORTURE_H
#define BSRUN_TORTURE_H
#include <sys/types.h>

#include "bsrun/bsrun.h"

enum torture_kind { TORTURE_COMM = 0, TORTURE_METHOD = 1, TORTURE_BACKEND = 2 };
enum torture_fault {
  TORTURE_NONE = -1,
  TORTURE_ERR = 0,
  TORTURE_HANG = 1,
  TORTURE_DELAY = 2, /* shorter than the deadline */
  TORTURE_LATE = 3,  /* longer */
  TORTURE_FLIP = 4,
  TORTURE_NAN = 5,
  TORTURE_TRUNCATE = 6,
  TORTURE_KILL = 7, /* of a rank that is a process */
  TORTURE_STOP = 8,
  TORTURE_FAULTS = 9
};
/* How ranks come to be; -1 where it is not asked for: as the communicator has them. */
enum torture_launch { TORTURE_THREADS = 0, TORTURE_PROCESSES = 1, TORTURE_MPI = 2, TORTURE_LAUNCHES = 3 };
enum { TORTURE_WORDS = 96, TORTURE_SUBJECTS = 32, TORTURE_WORLDS = 16 };

typedef struct torture_subject {
  uint32_t kind; /* enum torture_kind */
  char name[64];
  int launch; /* of its worlds */
  int driven; /* one thread goes through all ranks: nobody can sleep */
} torture_subject;

/* One child: a fault at a call of a rank, or the clean run (fault TORTURE_NONE). */
typedef struct torture_case {
  const torture_subject *subject;
  uint32_t world_size, rank;
  int fault;
  char op[40];
  uint64_t seq;
  /* after it ran */
  int code; /* exit code; -1: ended by a signal; -2: had to be killed */
  int signal;
  double seconds;
  char why[400]; /* "" as specified */
} torture_case;

typedef struct torture {
  const args *a;
  double deadline, clean_seconds; /* of the slowest clean run so far, for each of the jobs */
  int quick, format, quiet;
  int launch; /* --launch; -1: not given */
  size_t jobs;
  uint32_t worlds[TORTURE_WORLDS];
  size_t n_worlds;
  torture_subject subjects[TORTURE_SUBJECTS];
  size_t n_subjects;
  char scratch[64];
  torture_case *cases;
  size_t n_cases, capacity;
  double began;
  int (*ended)(struct torture *t, torture_case *c); /* NULL: nothing to say */
} torture;

extern const char *const torture_fault_names[TORTURE_FAULTS];
extern const char *const torture_kind_names[];
extern const char *const torture_launch_names[TORTURE_LAUNCHES];
double torture_now(void);

/* torture_plan.c */
/* How the ranks of a communicator come to be (NULL: of the default one), which a child process asks it. */
int torture_launch_of(const torture *t, const char *comm);
/* Whether one thread drives all ranks of it (BS_LAUNCH_DRIVEN). */
int torture_is_driven(const torture *t, const char *comm);
/* The communicator where none is named. */
const char *torture_comm_of(int launch);
/* --plan: the program once; its exit code. */
int torture_run_planned(const torture *t, const char *plan, bs_error *err);

/* torture_list.c: runs the clean run of each world of the subject and adds its cases. */
int32_t torture_list(torture *t, const torture_subject *s, bs_error *err);
/* The plan string of a case: "" for a clean run. */
void torture_plan_text(const torture *t, const torture_case *c, char *out, size_t size);

/* torture_run.c */
/* The words of the child (bsrun first, NULL last), each malloc'd. 0: out of memory. */
int torture_words(const torture *t, const torture_case *c, const char *folder, char *words[TORTURE_WORDS]);
void torture_words_free(char *words[TORTURE_WORDS]);
/* The same as one line for a shell. The caller frees. */
char *torture_command(const torture *t, const torture_case *c);
/* Runs cases [first, n) of t->cases, t->jobs at once, and judges each. */
int32_t torture_run(torture *t, size_t first, bs_error *err);

/* How many processes are left of the child whose folder this is, whatever group and parent they have by now;
 * they are ended. What has just been killed is given time to go. */
unsigned torture_end_left(const char *folder);
/* Removes a folder and all in it. */
void torture_remove(const char *folder);

/* torture_judge.c: fills c->why from what the child left: its two streams and its folder. */
void torture_judge(const torture *t, torture_case *c, const char *folder, const char *out, const char *errors,
                   pid_t group);
/* The exit codes that are as specified: the second one is -1 where there is only one. */
void torture_wanted(const torture_case *c, int out_codes[2]);

/* Seconds after the deadline; more under mpirun, whose ranks wait for rank 0 and which ends others slowly. */
double torture_grace(const torture_case *c);

/* torture_card.c: the card on stdout; how many are not as specified. */
int32_t torture_card(const torture *t, size_t *out_failed, bs_error *err);
#endif
