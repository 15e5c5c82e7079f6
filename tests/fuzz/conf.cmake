baton_fuzz(fuzz_conf LIBS bt_common
           SOURCES ${PROJECT_SOURCE_DIR}/proxy/config/config.c
                   ${PROJECT_SOURCE_DIR}/proxy/config/config_check.c)
