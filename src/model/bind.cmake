# Configs, names and inspection: what is known of a checkpoint before any weight is packed.
lacuna_library(lacuna_bind
  SOURCES binder.cc config_fields.cc glm_dsa_bind.cc glm_dsa_config.cc nemotron_h_config.cc nemotron_h_bind.cc
          inspect.cc
  DEPS lacuna_checkpoint)

lacuna_test(nemotron_h_config_test LABEL unit SOURCES nemotron_h_config_test.cc DEPS lacuna_bind)
lacuna_test(nemotron_h_bind_test LABEL hostile SOURCES nemotron_h_bind_test.cc DEPS lacuna_bind)
lacuna_test(glm_dsa_config_test LABEL unit SOURCES glm_dsa_config_test.cc DEPS lacuna_bind)
lacuna_test(glm_dsa_bind_test LABEL hostile SOURCES glm_dsa_bind_test.cc DEPS lacuna_bind)
lacuna_test(inspect_test LABEL golden SOURCES inspect_test.cc DEPS lacuna_bind)

lacuna_fuzz(nemotron_h_config_fuzz SOURCES nemotron_h_config_fuzz.cc DEPS lacuna_bind)
