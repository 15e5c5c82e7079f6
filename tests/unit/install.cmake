# What is installed is enough to build against, and each part builds without
# what only the others need. Sanitizers are not the consumer's.
if(NOT BATON_SANITIZE AND NOT BATON_COVERAGE AND NOT BATON_FUZZ)
  foreach(what package parts)
    add_test(NAME install.${what}
        COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/install.sh ${what}
                ${PROJECT_BINARY_DIR} ${PROJECT_VERSION})
    set_tests_properties(install.${what} PROPERTIES LABELS unit TIMEOUT 300)
  endforeach()
endif()
