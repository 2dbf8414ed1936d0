/* SPDX-License-Identifier: MIT
 * help.c - the help of bsrun and of every verb. Plain text, printed before anything is
 * opened. */
#include <stdio.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "core/base/error.h"

void help_main(void) {
  fputs(
      "bsrun - split a linear layer over ranks, prove that it is right, and time it\n"
      "\n"
      "usage: bsrun [VERB] [options]\n"
      "\n"
      "  bsrun --plugin cpu --method blockshock     prove it right on two ranks, then time it\n"
      "  bsrun --method row_parallel -P 4 --phase 0 only the proof, on four ranks\n"
      "  bsrun --method auto -P 2                   the fastest way of splitting, by prediction and "
      "measurement\n"
      "  bsrun plugins list                         what there is to choose from\n"
      "\n"
      "verbs:\n",
      stdout);
  for (size_t i = 0; i < bsrun_n_verbs; i++)
    printf("  %-10s %s\n", bsrun_verbs[i].name, bsrun_verbs[i].summary);
  fputs("\noptions of run (the verb may be left out):\n", stdout);
  args_print_options(bsrun_run_options, bsrun_n_run_options);
  fputs(
      "\n"
      "A NAME is a registered id, a file of the configs folder, or a path to a YAML file.\n"
      "Results go to stdout, all else to stderr. `bsrun help VERB` says more; pages are installed in\n"
      "PREFIX/share/doc/blockshock.\n",
      stdout);
}

void help_run(void) {
  fputs(
      "usage: bsrun [run] [options]\n"
      "\n"
      "Runs phase 0 (every rank's output is judged against an fp64 reference, and injected errors are shown\n"
      "to be detected), then phase 1 (the method timed against the dense layer in interleaved pairs). Each "
      "phase is one run "
      "folder:\n"
      "<out>/[<group>/]<phase>/<method>/<run id>/ with config.yaml, env.json, seed.txt, metrics.jsonl, "
      "log.txt\nand DONE.\n"
      "\n",
      stdout);
  args_print_options(bsrun_run_options, bsrun_n_run_options);
  fputs(
      "\n"
      "Order of configuration, later wins: base.yaml, --config files, --phase, --method, --mask, "
      "--workload,\n"
      "--hardware, --sweep, then --plugin, -P and the other options, then --set.\n"
      "\n"
      "examples:\n"
      "  bsrun --plugin cpu --method blockshock\n"
      "  bsrun --method masked_split --mask complement_1010_0101 --set model.N=1024 --set model.dtype=f32\n"
      "  bsrun --method row_parallel -P 3 --mask interleave --phase 0 -o json\n"
      "  bsrun --method blockshock --phase 2        the backward pass: dX, dW and db judged\n"
      "  bsrun --method blockshock --workload file --set workload.weights=model.safetensors#layer.weight\n"
      "  bsrun --method blockshock --phase 0 --dump tensors\n"
      "  bsrun --method blockshock --launch processes -P 2   ranks are processes, not threads\n"
      "  bsrun --method dense --sweep batch_sweep -o csv\n"
      "  bsrun --config results/raw/phase0_correctness/blockshock/RUN/config.yaml\n"
      "\n"
      "exit codes: 0 done; 2 usage; 3 configuration; 4 input file; 5 plugin, device or library; 6 numbers "
      "wrong;\n"
      "7 a rank died; 8 deadline; 9 ranks disagree; 10 memory or disk; 11 store busy; 12 some points of a "
      "sweep\n"
      "failed; 13 store corrupt; 14 performance gate; 15 inconclusive; 70 internal; 130, 143 signals.\n",
      stdout);
}

void help_plugins(void) {
  fputs(
      "usage: bsrun plugins list [--load] [--plugin ID|PATH] [-o FORMAT]\n"
      "       bsrun plugins inspect ID|PATH [--exists] [--atleast-version X.Y.Z] [-o FORMAT]\n"
      "       bsrun plugins why ID|PATH [--plugin ID|PATH] [--config FILE] [--set KEY=VALUE] [-o FORMAT]\n"
      "       bsrun plugins knobs [ID|PATH] [-o FORMAT]\n"
      "       bsrun plugins new NAME --kind KIND [--dir DIR] [-o FORMAT]\n"
      "       bsrun plugins check ID|PATH [--kit quick|full] [--group G] [--backend B] [--xfail FILE]\n"
      "                                   [-o text|tap|json]\n"
      "\n"
      "list      every plugin found, refused and shadowed ones included; reads notes, runs no plugin code\n"
      "  --load  opens each in a child process, asks backends for devices, and says whether it works here\n"
      "inspect   what one plugin registers, and where in its source; its parameters, their values and "
      "origins\n"
      "  --exists             print nothing; 0 when it can be used, 5 when not\n"
      "  --atleast-version V  the same, and its version is V or later\n"
      "why       why a plugin is or is not used: where it was looked for and found, what shadows it, which "
      "rule\n"
      "          refuses it, what it registers, which configuration keys select it; exit 0: usable, 5: not\n"
      "knobs     what can be told to implementations of ops (tune.choices), to methods (method.KNOB) and to\n"
      "          collective algorithms (hardware.algorithm): names, legal values, defaults\n"
      "new       a folder with a small plugin that builds and works, to begin your own from\n"
      "  --kind KIND          op, graph_op, backend, method, communicator, workload or algorithm\n"
      "  --dir DIR            the folder to make; default: NAME, here. One that exists is refused\n"
      "check     grades one by the conformance kit (bs-conformance) in a child process: 0 conformant, 5 not\n"
      "  --kit quick|full     how many generated cases (quick)\n"
      "  --group G            abi, lifecycle, truth, numerics, method, communicator, workload, algorithm,\n"
      "                       threads or hygiene,\n"
      "                       or the beginning of names of checks in one (method.gradient)\n"
      "  --backend B          what methods are graded on (ref)\n"
      "  --mpirun WORDS       what starts the ranks of a communicator that is an MPI's (mpirun of PATH)\n"
      "  --xfail FILE         lines NAME: REASON of expected failures; a listed check that passes counts as\n"
      "                       a failure\n"
      "  --param NAME=VALUE, --option NAME=VALUE   of the plugin; of its methods and workloads\n"
      "          The grade is kept for this very file, shown by list, inspect and why, and stored in the "
      "records "
      "of runs\n"
      "\n"
      "Options of all subcommands except `new`:\n"
      "  -o, --output FORMAT  table, md, csv, json or jsonl; new has it too; of check text, tap or json\n"
      "  --wide               list, inspect, why, knobs: a table of all columns, however wide\n"
      "  --config FILE        plugin_dirs, plugin_trust, parameters and what selects plugins, from a YAML "
      "file\n"
      "  --set KEY=VALUE      set one key of it\n"
      "  -v, --verbose        say more\n"
      "  -h, --help           this help\n"
      "\n"
      "Searched: --plugin files, BS_PLUGIN_PATH, plugin_dirs of the configuration, the library's own "
      "folder.\n"
      "\n"
      "examples:\n"
      "  bsrun plugins list --load\n"
      "  bsrun plugins list -o json\n"
      "  bsrun plugins inspect cpu\n"
      "  bsrun plugins inspect ./build/bs_acme.so\n"
      "  bsrun plugins knobs cpu\n"
      "  bsrun plugins why ./build/bs_acme.so\n"
      "  bsrun plugins why acme --set method.name=acme -o json\n"
      "  bsrun plugins new acme --kind method && make -C acme run\n"
      "  bsrun plugins check ./build/bs_acme.so --kit full\n"
      "  bsrun plugins check ./build/bs_acme.so --group method --backend cpu\n"
      "  bsrun plugins check acme --xfail xfail.txt -o json\n",
      stdout);
}

void help_config(void) {
  fputs(
      "usage: bsrun config print [options of run] [-o FORMAT]\n"
      "       bsrun config keys [-o FORMAT]\n"
      "\n"
      "print   the resolved configuration as YAML (with -o: one row a key); creates nothing\n"
      "keys    every key: type, default, values, effect, meaning\n"
      "\n"
      "examples:\n"
      "  bsrun config print --method blockshock --phase 1\n"
      "  bsrun config print --config mine.yaml --set model.N=512 > resolved.yaml\n"
      "  bsrun config keys -o md\n",
      stdout);
}

void help_version(void) {
  fputs(
      "usage: bsrun version [-o FORMAT]\n\nPrints the versions of Block-Shock, its library build and its "
      "plugin ABI.\n\nexamples:\n  bsrun version\n  bsrun version -o json\n",
      stdout);
}

void help_help(void) {
  fputs("usage: bsrun help [VERB]\n\nexample:\n  bsrun help run\n", stdout);
}

int verb_help(int argc, char **argv) {
  bs_error err = BS_ERROR_INIT;
  if (argc == 0) {
    help_main();
    return 0;
  }
  const bsrun_verb *verb = bsrun_find_verb(strcmp(argv[0], "--help") == 0 ? "help" : argv[0], &err);
  if (verb != NULL && argc > 1)
    bs_error_set(&err, BS_USAGE, "BS-USE-WORD", "unexpected argument '%.100s'", argv[1]);
  if (verb == NULL || argc > 1) return bsrun_fail(&err);
  verb->help();
  return 0;
}
