// tools/setup runs this once on a llama.cpp that it has just built: loads a model, decodes one batch and one token.
// Exits 0 if the logits are finite. A bad build crashes here (see llama.cpp and AMX in tools/setup).
#include <llama.h>

#include <cmath>
#include <cstdio>
#include <vector>

static bool decode(llama_context* context, std::vector<llama_token> tokens, int vocab_size) {
  if (llama_decode(context, llama_batch_get_one(tokens.data(), static_cast<int>(tokens.size()))) != 0) return false;
  const float* logits = llama_get_logits_ith(context, -1);
  if (logits == nullptr) return false;
  for (int i = 0; i < vocab_size; ++i) {
    if (!std::isfinite(logits[i])) return false;
  }
  return true;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) return 1;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 512;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return 1;
  const int vocab_size = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::vector<llama_token> batch;
  for (int i = 0; i < 128; ++i) batch.push_back(100 + 7 * i);
  const bool ok = decode(context, batch, vocab_size) && decode(context, {42}, vocab_size);
  std::puts(ok ? "ok" : "decoding failed");
  llama_free(context);
  llama_model_free(model);
  return ok ? 0 : 1;
}
