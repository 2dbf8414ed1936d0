#include "tests/graph/split_case.h"
START_TEST(show){
  static const char *const names[]={"gpt2/","qwen3/","builtin:lm:2x192","builtin:vit:2x192","gpt2_23","gpt2_20","qwen3_23","qwen3_20","bert_23_dynamic","bert_20","llama_23","t5_encoder_23","vit_23","block_naive_toy_23","mlp_4x128_23","gpt2_last_23","gpt2_23_batch2","gpt2_20_batch2","qwen3_23_batch2","qwen3_20_batch2","llama_23_batch2","llama_20_batch2"};
  for(int i=0;i<TEST_COUNT(names);i++){ for (int p=0;p<2;p++){
   bs_graph*m=split_open(names[i]); graph*g=split_graph(m,5,p?"epilogue":NULL); gsplit*s; bs_text t={0};
   split_ok(gsplit_peel(g,&split_err),"peel"); split_ok(graph_validate(g,"peel",&split_err),"valid");
   split_ok(gsplit_find(g,&s,&split_err),"find"); gsplit_for(s,g,2); gsplit_text(s,g,&t); printf("=== %s %d: %u regions %u cuts\n%s",names[i],p,s->n_regions,s->n_cuts,t.data?t.data:"");
   bs_text_free(&t); gsplit_free(s); graph_free(g);
   bs_graph_close(split_opened); split_opened=NULL; bs_model_close(&split_made); memset(&split_made,0,sizeof split_made);
  }}
}END_TEST
int main(void){ const test_case rows[]={{show},{0}}; return run_tests("split_pair",rows,(test_setup){.before=split_begin,.after=split_end,.timeout=60}); }
